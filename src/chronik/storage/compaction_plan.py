"""Which segments of a log compaction may clean, and whether it is time to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chronik.storage.fs import FileSystem
from chronik.storage.log import Log
from chronik.storage.segment import Segment
from chronik.wire.records import NO_TIMESTAMP


class CompactionRules(NamedTuple):
    """The topic's configuration as far as compaction is concerned, with Kafka's defaults."""

    dirty_ratio_min: float = 0.5
    lag_ms_min: int = 0
    lag_ms_max: int = 2**63 - 1
    delete_retention_ms: int = 24 * 3600 * 1000


class Source(NamedTuple):
    """A sealed segment as it was when the plan was made: nothing of it changes under a thread."""

    segment: Segment
    path: str
    base_offset: int
    end_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What may be cleaned of a log, and how urgent it is."""

    fs: FileSystem
    directory: str
    sources: tuple[Source, ...]
    """Every sealed segment below the first uncleanable offset, clean ones included."""
    first_dirty_offset: int
    end_offset: int
    dirty_bytes: int
    clean_bytes: int
    overdue: bool
    """True where max.compaction.lag.ms asks for a cleaning, whatever the ratio."""
    rules: CompactionRules
    segment_bytes: int
    interval: int
    truncations: int

    @property
    def dirty_ratio(self) -> float:
        """Dirty bytes among all that may be cleaned."""
        return self.dirty_bytes / (self.dirty_bytes + self.clean_bytes)

    @property
    def is_due(self) -> bool:
        """True where the topic's configuration asks for a cleaning now."""
        return self.overdue or self.dirty_ratio >= self.rules.dirty_ratio_min


def plan(log: Log, rules: CompactionRules, high_watermark: int, now_ms: int) -> Plan | None:
    """What of the log could be cleaned; None where nothing is dirty.

    Never the active segment, nothing at or above the high watermark, no segment with a dirty record
    younger than min.compaction.lag.ms and none after it.
    """
    first_dirty = log.first_dirty_offset
    if not log.start_offset <= first_dirty <= log.end_offset:
        first_dirty = log.start_offset
    sources = list(_cleanable(log, rules, first_dirty, high_watermark, now_ms))
    dirty = [source for source in sources if source.end_offset > first_dirty]
    dirty_bytes = sum(source.size for source in dirty)
    if not dirty_bytes:
        return None
    return Plan(
        fs=log.storage.fs,
        directory=log.directory,
        sources=tuple(sources),
        first_dirty_offset=first_dirty,
        end_offset=sources[-1].end_offset,
        dirty_bytes=dirty_bytes,
        clean_bytes=sum(source.size for source in sources) - dirty_bytes,
        overdue=_is_overdue(dirty, rules, now_ms),
        rules=rules,
        segment_bytes=log.config.segment_bytes,
        interval=log.config.index_interval_bytes,
        truncations=log.truncations,
    )


def _cleanable(
    log: Log, rules: CompactionRules, first_dirty: int, high_watermark: int, now_ms: int
) -> Iterator[Source]:
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        end_offset = following.base_offset
        if end_offset > high_watermark:
            return
        may_be_young = rules.lag_ms_min > 0 and end_offset > first_dirty
        if may_be_young and segment.summary().max_timestamp > now_ms - rules.lag_ms_min:
            return
        yield Source(segment, segment.path, segment.base_offset, end_offset, segment.size)


def _is_overdue(dirty: Sequence[Source], rules: CompactionRules, now_ms: int) -> bool:
    """Only a finite lag makes it worth reading what the index headers say."""
    clean_until_ms = now_ms - max(rules.lag_ms_max, rules.lag_ms_min)
    if clean_until_ms <= 0:
        return False
    firsts = (source.segment.summary().first_timestamp for source in dirty)
    return any(first != NO_TIMESTAMP and first < clean_until_ms for first in firsts)
