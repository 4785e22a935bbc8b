"""Where was it lost? The way of a missing offset through the broker, by its trace events.

A message is received, appended, replicated, committed, served and consumed. The last arrow that
can be found says where it was lost; without complete traces the absence of an arrow says nothing.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from chronik.audit.history import History
from chronik.audit.rows import Partition, Row
from chronik.trace.events import EventKind, TraceEvent


class Where(StrEnum):
    """The last place that a missing message reached."""

    NOT_APPENDED = "acknowledged and never appended"
    OVERWRITTEN = "appended and overwritten"
    NOT_COMMITTED = "appended and never committed"
    NOT_SERVED = "committed and not served"
    NOT_CONSUMED = "served and not consumed"
    UNKNOWN = "unknown: events are missing"


class Trail:
    """The trace events of each partition, asked for one offset at a time."""

    def __init__(self, events: Iterable[TraceEvent]) -> None:
        self._ranges: dict[tuple[int, Partition], list[TraceEvent]] = {}
        self._watermarks: dict[Partition, int] = {}
        self._complete = True
        for event in events:
            number = -1 if event.partition is None else event.partition
            partition = Partition(event.topic or "", number)
            if event.kind in (EventKind.APPENDED, EventKind.FETCH_DATA):
                self._ranges.setdefault((event.kind, partition), []).append(event)
            elif event.kind == EventKind.WATERMARK:
                known = self._watermarks.get(partition, 0)
                self._watermarks[partition] = max(known, event.high_watermark or 0)
            elif event.kind in (EventKind.DROPPED, EventKind.EXPIRED):
                self._complete = False

    def locate(self, partition: Partition, offset: int) -> Where:
        appended = self._holding(EventKind.APPENDED, partition, offset)
        if not appended:
            return Where.NOT_APPENDED if self._complete else Where.UNKNOWN
        if len(appended) > 1:
            return Where.OVERWRITTEN
        if self._watermarks.get(partition, 0) <= offset:
            return Where.NOT_COMMITTED
        if self._holding(EventKind.FETCH_DATA, partition, offset):
            return Where.NOT_CONSUMED
        if not self._complete or self._perhaps_served(partition, offset):
            return Where.UNKNOWN
        return Where.NOT_SERVED

    def _perhaps_served(self, partition: Partition, offset: int) -> bool:
        """A fetch from before the offset whose event does not say how far it went."""
        return any(
            event.last_offset is None and (event.base_offset or 0) <= offset
            for event in self._ranges.get((EventKind.FETCH_DATA, partition), [])
        )

    def _holding(self, kind: EventKind, partition: Partition, offset: int) -> list[TraceEvent]:
        return [
            event
            for event in self._ranges.get((kind, partition), [])
            if event.base_offset is not None
            and event.last_offset is not None
            and event.base_offset <= offset <= event.last_offset
        ]


def where_lost(rows: Iterable[Row], events: Iterable[TraceEvent]) -> dict[str, int]:
    """How many acked values that nobody read were lost where."""
    history, trail = History(rows), Trail(events)
    counts: Counter[str] = Counter()
    for value, send in history.sends.items():
        if send.offset < 0 or value in history.reads or not history.is_committed(send):
            continue
        partition = history.partition_of_value(value, send)
        if not history.is_expired(partition, send.offset):
            counts[trail.locate(partition, send.offset)] += 1
    return dict(counts)
