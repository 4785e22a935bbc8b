"""Record batches as compaction sees them: walked record by record, and built again from a part.

A batch that loses records keeps its base offset, last offset, producer, epoch, sequence and codec;
only count, length, largest timestamp and CRC change. A batch that holds tombstones gets a delete
horizon (KIP-534): attribute 0x40, and the base timestamp is the time from which they may go.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from chronik.wire.compression import Codec, compress, packed
from chronik.wire.record_iter import CorruptRecords, decompress, read_varint
from chronik.wire.record_writer import zigzag
from chronik.wire.records import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
)

PACE_RECORDS = 128
"""Records between two calls of `pace`: well under a millisecond."""

Pace = Callable[[], None]
Frame = tuple[int, int, int, int, bytes | None, bool]
"""start, end, timestamp delta, offset delta, key, whether there is a value."""


class Kept(NamedTuple):
    """What is left of a batch's records."""

    frames: list[tuple[int, int, int]]
    """(start, end, timestamp delta) of each."""
    has_tombstones: bool


def no_pace() -> None:
    """Works on without a pause."""


def has_delete_horizon(header: BatchHeader) -> bool:
    """True where the base timestamp says when tombstones may go."""
    return bool(header.attributes & DELETE_HORIZON_FLAG)


def records_of(header: BatchHeader, batch: Buffer) -> bytes:
    """The records part, decompressed."""
    return decompress(header.codec, batch[HEADER_SIZE : header.size])


def walk(header: BatchHeader, data: bytes, pace: Pace) -> Iterator[Frame]:
    """Every record of the batch. Values and headers are skipped; garbage is CorruptRecords."""
    position, size = 0, len(data)
    try:
        for number in range(header.record_count):
            if not number % PACE_RECORDS:
                pace()
            start = position
            length, position = read_varint(data, position)
            end = position + length
            if length <= 0 or end > size:
                raise CorruptRecords(f"record of {length} bytes, {size - position} are left")
            timestamp_delta, position = read_varint(data, position + 1)
            offset_delta, position = read_varint(data, position)
            key_size, position = read_varint(data, position)
            key = None
            if key_size >= 0:
                key = data[position : position + key_size]
                position += key_size
            has_value = read_varint(data, position)[0] >= 0
            if position >= end:
                raise CorruptRecords("record shorter than its own fields")
            yield start, end, timestamp_delta, offset_delta, key, has_value
            position = end
    except IndexError as error:
        raise CorruptRecords("the records end too early") from error


def rebuilt(header: BatchHeader, data: bytes, kept: Kept, horizon_ms: int | None) -> bytes:
    """The batch with those records only; `horizon_ms` where a delete horizon is to be set."""
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is None:
        pieces = [data[start:end] for start, end, _ in kept.frames]
    else:
        attributes |= DELETE_HORIZON_FLAG
        shift = base_timestamp - horizon_ms
        pieces = [_rebased(data, start, end, shift) for start, end, _ in kept.frames]
        base_timestamp = horizon_ms
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = header.base_timestamp + max(delta for _, _, delta in kept.frames)
    changed = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(pieces),
    )
    return bytes(packed(changed, compress(Codec(header.codec), b"".join(pieces))))


def emptied(header: BatchHeader) -> bytes:
    """The batch without records, as Kafka keeps it: offsets and sequence numbers live on."""
    changed = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return bytes(packed(changed, b""))


def _rebased(data: bytes, start: int, end: int, shift: int) -> bytes:
    """The record with another timestamp delta: its timestamp stays, its base moves."""
    _, attributes_at = read_varint(data, start)
    delta, rest = read_varint(data, attributes_at + 1)
    body = data[attributes_at : attributes_at + 1] + zigzag(delta + shift) + data[rest:end]
    return zigzag(len(body)) + body


def judged(
    header: BatchHeader,
    data: bytes,
    keep: Callable[[int, bytes | None, bool], bool],
    pace: Pace,
) -> Kept:
    """The records for which `keep` (offset, key, whether there is a value) says yes."""
    frames: list[tuple[int, int, int]] = []
    has_tombstones = False
    base_offset = header.base_offset
    for start, end, timestamp_delta, offset_delta, key, has_value in walk(header, data, pace):
        if keep(base_offset + offset_delta, key, has_value):
            frames.append((start, end, timestamp_delta))
            has_tombstones = has_tombstones or not has_value
    return Kept(frames, has_tombstones)
