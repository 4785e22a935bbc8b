"""The records part of a batch in another codec: for compaction, and where a topic names a codec.

As in `record_iter.py`, cramjam is imported where it is first needed.
"""

from typing import Final, NamedTuple

from chronik.wire.record_iter import CorruptRecords, decompress
from chronik.wire.records import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    batch_crc,
    read_header,
)

CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""The values of compression.type that name a codec, with their numbers in a batch's attributes."""
LZ4_BLOCK_BYTES: Final = 64 * 1024
LZ4_FRAME_HEAD: Final = bytes.fromhex("04224d18604082")
"""Independent blocks of 64 KiB without checksums: the only lz4 frames that Java clients read are
those of independent blocks."""
LZ4_FAST_LEVEL: Final = 9
"""Kafka's default level, for which it takes the fast compressor; any other is a level of lz4hc."""
_LZ4_STORED: Final = 0x80000000


class Codec(NamedTuple):
    """What compression.type and its level ask for; None is the codec's own default."""

    number: int
    level: int | None = None


def compress(codec: Codec, data: bytes) -> bytes:
    """The records part of a batch of that codec, in a framing every client reads."""
    if not codec.number:
        return data
    import cramjam  # noqa: PLC0415

    match codec.number:
        case 1:
            return bytes(cramjam.gzip.compress(data, level=codec.level))
        case 2:
            return bytes(cramjam.snappy.compress_raw(data))
        case 3:
            return _lz4(data, codec.level)
        case 4:
            return bytes(cramjam.zstd.compress(data, level=codec.level))
        case _:
            raise CorruptRecords(f"unknown compression codec {codec.number}")


def _lz4(data: bytes, level: int | None) -> bytes:
    parts: list[bytes] = [LZ4_FRAME_HEAD]
    for at in range(0, len(data), LZ4_BLOCK_BYTES):
        block = data[at : at + LZ4_BLOCK_BYTES]
        packed = _lz4_block(block, level)
        if len(packed) < len(block):
            parts += (len(packed).to_bytes(4, "little"), packed)
        else:
            parts += ((len(block) | _LZ4_STORED).to_bytes(4, "little"), block)
    parts.append(bytes(4))
    return b"".join(parts)


def _lz4_block(block: bytes, level: int | None) -> bytes:
    import cramjam  # noqa: PLC0415

    if level is None or level == LZ4_FAST_LEVEL:
        return bytes(cramjam.lz4.compress_block(block, store_size=False))
    return bytes(
        cramjam.lz4.compress_block(
            block, mode="high_compression", compression=level, store_size=False
        )
    )


def recompressed(batch: memoryview, codec: Codec) -> memoryview:
    """The batch in that codec; itself where it has it already, or is no sound batch anyway.

    As in Kafka, another level alone is no reason to do it. Garbage inside a sound batch is
    CorruptRecords.
    """
    if len(batch) < HEADER_SIZE:
        return batch
    header = read_header(batch)
    is_sound = header.magic == MAGIC and header.size == len(batch)
    if not is_sound or header.codec == codec.number or batch_crc(batch) != header.crc:
        return batch
    records = decompress(header.codec, batch[HEADER_SIZE:])
    attributes = header.attributes & ~CODEC_MASK | codec.number
    changed = header._replace(attributes=attributes)
    return memoryview(packed(changed, compress(codec, records)))


def packed(header: BatchHeader, records: bytes) -> bytearray:
    """A batch of these fields and this records part, its length and CRC made right."""
    length = HEADER_SIZE + len(records) - LENGTH_OVERHEAD
    batch = bytearray(HEADER.pack(*header._replace(length=length, crc=0)) + records)
    HEADER.pack_into(batch, 0, *header._replace(length=length, crc=batch_crc(batch)))
    return batch
