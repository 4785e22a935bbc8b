"""Which segments retention lets go: the oldest ones, as long as each fulfils a condition."""

from collections.abc import Sequence
from typing import NamedTuple

from chronik.storage.segment import Segment
from chronik.wire.records import NO_TIMESTAMP

UNLIMITED = -1


class Retention(NamedTuple):
    """`retention.ms` and `retention.bytes` of a topic (-1: unlimited), and what bounds them now."""

    now_ms: int
    retention_ms: int
    retention_bytes: int
    high_watermark: int


def expired_segments(
    segments: Sequence[Segment], start_offset: int, end_offset: int, retention: Retention
) -> int:
    """How many of the oldest segments may go; all of them only if the active one holds data."""
    excess = _excess_bytes(segments, retention.retention_bytes)
    count = 0
    for number, segment in enumerate(segments):
        active = number + 1 == len(segments)
        end = end_offset if active else segments[number + 1].base_offset
        if end > retention.high_watermark or (active and not segment.size):
            break
        left_behind = end <= start_offset and not active
        if not (left_behind or segment.size <= excess or _is_old(segment, retention)):
            break
        excess -= segment.size
        count += 1
    return count


def _excess_bytes(segments: Sequence[Segment], retention_bytes: int) -> int:
    if retention_bytes == UNLIMITED:
        return -1
    return sum(segment.size for segment in segments) - retention_bytes


def _is_old(segment: Segment, retention: Retention) -> bool:
    """A segment without timestamps never grows old."""
    if retention.retention_ms == UNLIMITED:
        return False
    youngest = segment.summary().max_timestamp
    return youngest != NO_TIMESTAMP and retention.now_ms - youngest > retention.retention_ms
