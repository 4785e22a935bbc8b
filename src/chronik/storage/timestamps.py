"""ListOffsets by time: the segment by its largest timestamp, the batch by the time index, then the
record inside the batch, decompressed if need be."""

from collections.abc import Sequence
from typing import NamedTuple

from chronik.storage.segment import Segment
from chronik.wire.record_iter import iter_timestamps
from chronik.wire.records import NO_TIMESTAMP, BatchHeader


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(
    segments: Sequence[Segment], start_offset: int, timestamp: int
) -> TimestampOffset | None:
    """The first record from `start_offset` on that is at least as young as `timestamp`."""
    for segment in segments:
        summary = segment.summary()
        if summary.max_timestamp < timestamp or summary.next_offset <= start_offset:
            continue
        found = _first_in_segment(segment, start_offset, timestamp)
        if found is not None:
            return found
    return None


def largest(segments: Sequence[Segment], start_offset: int) -> TimestampOffset | None:
    """The first record from `start_offset` on with the largest timestamp."""
    best = NO_TIMESTAMP
    where: Segment | None = None
    for segment in segments:
        timestamp = _largest_in_segment(segment, start_offset)
        if timestamp > best:
            best, where = timestamp, segment
    return None if where is None else _first_in_segment(where, start_offset, best)


def _largest_in_segment(segment: Segment, start_offset: int) -> int:
    summary = segment.summary()
    if summary.next_offset <= start_offset:
        return NO_TIMESTAMP
    if summary.base_offset >= start_offset:
        return summary.max_timestamp
    # The log starts inside the segment: what lies before does not count, record by record.
    youngest = NO_TIMESTAMP
    for position, header in segment.headers(segment.loaded_index().position_of(start_offset)):
        if header.last_offset < start_offset or header.max_timestamp <= youngest:
            continue
        if header.base_offset >= start_offset:
            youngest = header.max_timestamp
        else:
            records = iter_timestamps(segment.batch(position, header))
            youngest = max((t for offset, t in records if offset >= start_offset), default=youngest)
    return youngest


def _first_in_segment(
    segment: Segment, start_offset: int, timestamp: int
) -> TimestampOffset | None:
    index = segment.loaded_index()
    offset = max(index.offset_before(timestamp), start_offset)
    for position, header in segment.headers(index.position_of(offset)):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        found = _first_in_batch(segment.batch(position, header), header, start_offset, timestamp)
        if found is not None:
            return found
    return None


def _first_in_batch(
    batch: memoryview, header: BatchHeader, start_offset: int, timestamp: int
) -> TimestampOffset | None:
    for offset, record_timestamp in iter_timestamps(batch):
        if record_timestamp >= timestamp and offset >= start_offset:
            return TimestampOffset(record_timestamp, offset, header.leader_epoch)
    return None
