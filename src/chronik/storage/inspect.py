"""What is in a file, for people: plain values from segments, indexes, checkpoints and snapshots.

Reads files as they are, damaged ones too, and changes nothing; nothing here prints.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from chronik.storage.checkpoints import decode_lines
from chronik.storage.fs import FileSystem, read_exactly, read_whole
from chronik.storage.index import (
    HEADER_SIZE as INDEX_HEADER_SIZE,
)
from chronik.storage.index import (
    OFFSET_MAGIC,
    Summary,
    body_is_whole,
    body_size,
    decode_header,
    decode_pairs,
)
from chronik.storage.producer_snapshot import ProducerEntry, decode
from chronik.wire.records import HEADER_SIZE, MAGIC, batch_crc, read_header

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """One batch of a segment."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    codec: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    crc_ok: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Bytes at the end of a segment that are no batch."""

    position: int
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """An index file: what it says of its segment, and its entries."""

    kind: str
    summary: Summary
    entries: tuple[tuple[int, int], ...]
    """(offset, position), or (timestamp, offset); offsets are absolute."""
    is_whole: bool


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint file."""

    kind: str
    entries: tuple[str, ...]


def inspect_segment(fs: FileSystem, path: str) -> Iterator[BatchInfo | Unreadable]:
    """The batches of a `.log` file; where they stop before the file does, why."""
    size = fs.size(path)
    file = fs.open(path)
    try:
        position = 0
        while position < size:
            found = _batch_at(fs, file, position, size)
            yield found
            if isinstance(found, Unreadable):
                return
            position += found.size
    finally:
        fs.close(file)


def _batch_at(fs: FileSystem, file: int, position: int, size: int) -> BatchInfo | Unreadable:
    room = size - position
    if room < HEADER_SIZE:
        return Unreadable(position, room, "shorter than a batch header")
    header = read_header(read_exactly(fs, file, HEADER_SIZE, position))
    if header.magic != MAGIC:
        return Unreadable(position, room, f"magic {header.magic}")
    if not HEADER_SIZE <= header.size <= room:
        return Unreadable(position, room, f"a batch of {header.size} bytes, {room} are left")
    batch = read_exactly(fs, file, header.size, position)
    return BatchInfo(
        position=position,
        size=header.size,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        leader_epoch=header.leader_epoch,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        codec=_codec_name(header.codec),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        crc_ok=batch_crc(batch) == header.crc,
    )


def _codec_name(codec: int) -> str:
    return CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"unknown {codec}"


def inspect_index(fs: FileSystem, path: str) -> IndexInfo | None:
    """An `.index` or `.timeindex` file; None where its header is not whole."""
    data = read_whole(fs, path)
    header = decode_header(data)
    if header is None:
        return None
    body = data[INDEX_HEADER_SIZE:]
    whole = body_is_whole(header, body)
    pairs = decode_pairs(header, body) if len(body) == body_size(header) else []
    base = header.summary.base_offset
    if header.magic == OFFSET_MAGIC:
        entries = tuple((base + offset, position) for offset, position in pairs)
        return IndexInfo("offset", header.summary, entries, whole)
    entries = tuple((timestamp, base + offset) for timestamp, offset in pairs)
    return IndexInfo("time", header.summary, entries, whole)


def inspect_checkpoint(fs: FileSystem, path: str) -> CheckpointInfo:
    """A checkpoint of any kind; CorruptCheckpointError where it is damaged."""
    data = read_whole(fs, path)
    words = data.split(b"\n", 1)[0].decode("utf-8", "replace").split(" ")
    kind = words[1] if len(words) > 1 else ""
    return CheckpointInfo(kind, tuple(decode_lines(kind, data, path)))


def inspect_snapshot(fs: FileSystem, path: str) -> list[ProducerEntry]:
    """A producer snapshot; CorruptSnapshotError where it is damaged."""
    return decode(read_whole(fs, path))
