"""The records inside a batch, decompressed: for time lookups, tools and audits, not the hot path.

A record is a zigzag varint length, then attributes, timestamp delta, offset delta, key, value and
headers, each length a zigzag varint, -1 for null. Garbage raises `CorruptRecords`, and no input
makes more memory than `size_max` bytes. cramjam is imported where it is first needed: few nodes
ever look into compressed records, and all of them start sooner.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from chronik.model.limits import RECORDS_BYTES_MAX
from chronik.wire.records import HEADER_SIZE, BatchHeader, Buffer, read_header

VARINT_BYTES_MAX = 10
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE = 16
_GUESS_RATIO = 4
_GUESS_BYTES_MIN = 4096


class CorruptRecords(ValueError):  # noqa: N818
    """The records do not follow the format, or the compressed bytes do not decompress."""


class Record(NamedTuple):
    """One record, its deltas resolved."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def iter_records(batch: Buffer, size_max: int = RECORDS_BYTES_MAX) -> Iterator[Record]:
    """The records of one whole batch."""
    header, data = _open(batch, size_max)
    for position, end, offset, timestamp in _frames(header, data):
        yield _record(data, position, end, offset, timestamp)


def iter_timestamps(batch: Buffer, size_max: int = RECORDS_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of each record; keys, values and headers are skipped."""
    header, data = _open(batch, size_max)
    for _, _, offset, timestamp in _frames(header, data):
        yield offset, timestamp


def decompress(codec: int, data: Buffer, size_max: int = RECORDS_BYTES_MAX) -> bytes:
    """The records part of a batch of that codec (`BatchHeader.codec`)."""
    if not codec:
        return bytes(data)
    import cramjam  # noqa: PLC0415

    match codec:
        case 1:
            return _grow(cramjam.gzip.decompress_into, bytes(data), size_max)
        case 2:
            return _snappy(bytes(data), size_max)
        case 3:
            return _grow(cramjam.lz4.decompress_into, bytes(data), size_max)
        case 4:
            return _grow(cramjam.zstd.decompress_into, bytes(data), size_max)
        case _:
            raise CorruptRecords(f"unknown compression codec {codec}")


def _open(batch: Buffer, size_max: int) -> tuple[BatchHeader, bytes]:
    if len(batch) < HEADER_SIZE:
        raise CorruptRecords(f"{len(batch)} bytes are no batch")
    header = read_header(batch)
    if not HEADER_SIZE <= header.size <= len(batch):
        raise CorruptRecords(f"batch of {header.size} bytes in {len(batch)}")
    return header, decompress(header.codec, batch[HEADER_SIZE : header.size], size_max)


def _frames(header: BatchHeader, data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(position after the deltas, end, offset, timestamp) of each record."""
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(data, position)
        end = position + length
        if length <= 0 or end > len(data):
            raise CorruptRecords(f"record of {length} bytes, {len(data) - position} are left")
        timestamp_delta, position = read_varint(data, position + 1)
        offset_delta, position = read_varint(data, position)
        if position > end:
            raise CorruptRecords("record shorter than its own fields")
        timestamp = header.base_timestamp + timestamp_delta
        if header.is_log_append_time:
            timestamp = header.max_timestamp
        yield position, end, header.base_offset + offset_delta, timestamp
        position = end


def _record(data: bytes, position: int, end: int, offset: int, timestamp: int) -> Record:
    key, position = _nullable(data, position, end)
    value, position = _nullable(data, position, end)
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise CorruptRecords(f"{count} headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _nullable(data, position, end)
        content, position = _nullable(data, position, end)
        headers.append((_text(name), content))
    if position != end:
        raise CorruptRecords(f"{end - position} bytes are left of a record")
    return Record(offset, timestamp, key, value, headers)


def _text(name: bytes | None) -> str:
    if name is None:
        raise CorruptRecords("a header without a name")
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecords("a header's name is not UTF-8") from error


def _nullable(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if length < 0 or position + length > end:
        raise CorruptRecords(f"field of {length} bytes, {end - position} are left")
    return data[position : position + length], position + length


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, as records have them, and the position after it."""
    try:
        byte = data[position]
        if byte < 0x80:  # nearly always
            return (byte >> 1) ^ -(byte & 1), position + 1
        value, shift = byte & 0x7F, 7
        for at in range(position + 1, position + VARINT_BYTES_MAX):
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), at + 1
            shift += 7
    except IndexError:
        pass  # the bytes end before it does
    raise CorruptRecords(f"no varint at byte {position}")


def _grow(into: Callable[[bytes, bytearray], int], data: bytes, size_max: int) -> bytes:
    """Decompresses into a buffer that is doubled until it is large enough, or too large."""
    import cramjam  # noqa: PLC0415

    size = max(len(data) * _GUESS_RATIO, _GUESS_BYTES_MIN)
    while True:
        output = bytearray(min(size, size_max))
        try:
            return bytes(output[: into(data, output)])
        except cramjam.DecompressionError as error:
            # cramjam's only word for a full buffer.
            if "write whole buffer" not in str(error):
                raise CorruptRecords(str(error)) from error
            if size >= size_max:
                raise CorruptRecords(f"more than {size_max} bytes of records") from error
        size *= 2


def _snappy(data: bytes, size_max: int) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return _raw_snappy(data, size_max)
    # snappy-java's stream: a header, then blocks that each begin with their length.
    position, parts, size = XERIAL_HEADER_SIZE, [], 0
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if not 0 < length <= len(data) - position:
            raise CorruptRecords(f"snappy block of {length} bytes")
        parts.append(_raw_snappy(data[position : position + length], size_max - size))
        size += len(parts[-1])
        position += length
    return b"".join(parts)


def _raw_snappy(data: bytes, size_max: int) -> bytes:
    import cramjam  # noqa: PLC0415

    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > size_max:
            raise CorruptRecords(f"more than {size_max} bytes of records")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise CorruptRecords(str(error)) from error
