"""The hot path: one check when traces are off, one tuple and one append when they are on.

    if tracer.on:
        tracer.emit(EventKind.APPENDED, topic, partition, base_offset=base, ...)

`emit` never blocks and never raises; any thread may call it (a deque's append is atomic).
The queue is bounded. When it is full, events are counted, and a `DROPPED` event tells how many.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from chronik.model.limits import TRACE_EVENTS_QUEUED_MAX
from chronik.trace.events import EventKind, Row, TraceEvent

if TYPE_CHECKING:
    import pyarrow as pa

NanosClock = Callable[[], int]


def _no_clock() -> int:
    raise AssertionError("a tracer that is off reads no clock")


class Tracer:
    """A bounded queue of events. `on` never changes after construction, so callers may keep it."""

    __slots__ = (
        "_drop_reason",
        "_keep_newest",
        "_lock",
        "_mono_ns",
        "_queue",
        "_reported",
        "_wall_ns",
        "dropped",
        "events_max",
        "node",
        "on",
    )

    def __init__(
        self,
        node: int,
        wall_ns: NanosClock,
        mono_ns: NanosClock,
        *,
        events_max: int = TRACE_EVENTS_QUEUED_MAX,
        keep_newest: bool = False,
        on: bool = True,
    ) -> None:
        assert events_max > 0
        self.on = on
        self.node = node
        self.events_max = events_max
        self.dropped = 0
        self._reported = 0
        self._drop_reason = ""
        self._queue: deque[Row] = deque()
        self._keep_newest = keep_newest
        self._wall_ns = wall_ns
        self._mono_ns = mono_ns
        self._lock = threading.Lock()

    def emit(  # noqa: PLR0913, PLR0917 - one argument per column
        self,
        kind: EventKind,
        topic: str | None = None,
        partition: int | None = None,
        leader_epoch: int | None = None,
        base_offset: int | None = None,
        last_offset: int | None = None,
        record_count: int | None = None,
        bytes: int | None = None,  # noqa: A002 - the column's name
        high_watermark: int | None = None,
        log_end: int | None = None,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        base_sequence: int | None = None,
        acks: int | None = None,
        client_id: str | None = None,
        connection_id: int | None = None,
        correlation_id: int | None = None,
        peer: int | None = None,
        error_code: int | None = None,
        duration_us: int | None = None,
        detail: str | None = None,
    ) -> None:
        """Queues one event; a column that is not given is null."""
        queue = self._queue
        if len(queue) >= self.events_max and not self._make_room():
            return
        queue.append(
            (
                self._wall_ns(),
                self._mono_ns(),
                self.node,
                kind,
                topic,
                partition,
                leader_epoch,
                base_offset,
                last_offset,
                record_count,
                bytes,
                high_watermark,
                log_end,
                producer_id,
                producer_epoch,
                base_sequence,
                acks,
                client_id,
                connection_id,
                correlation_id,
                peer,
                error_code,
                duration_us,
                detail,
            )
        )

    def now(self) -> tuple[int, int]:
        """Wall clock and monotonic clock, as an event of this moment has them."""
        return self._wall_ns(), self._mono_ns()

    def add(self, row: Row) -> None:
        """Queues an event whose columns are in their places already."""
        queue = self._queue
        if len(queue) < self.events_max or self._make_room():
            queue.append(row)

    def __len__(self) -> int:
        """Events waiting."""
        return len(self._queue)

    def take(self, count_max: int) -> list[Row]:
        """Removes the oldest events, at most `count_max`; called by one consumer, the writer."""
        pop = self._queue.popleft
        return [pop() for _ in range(min(count_max, len(self._queue)))]

    def take_drops(self) -> Row | None:
        """The `DROPPED` event for what was lost since the last call; None where nothing was."""
        with self._lock:
            count = self.dropped - self._reported
            self._reported = self.dropped
            reason = self._drop_reason
        return self.row(EventKind.DROPPED, count, reason) if count else None

    def return_drops(self, drops: Row) -> None:
        """The `DROPPED` event itself could not be written: the next one reports its count too."""
        with self._lock:
            self._reported -= TraceEvent._make(drops).record_count or 0

    def row(self, kind: EventKind, record_count: int, detail: str) -> Row:
        """An event about the trace itself, made outside the queue."""
        now = (self._wall_ns(), self._mono_ns())
        return TraceEvent(*now, self.node, int(kind), record_count=record_count, detail=detail)

    def count_lost(self, count: int, reason: str) -> None:
        """Adds events lost for good; the next `DROPPED` reports them, with the last reason."""
        with self._lock:
            self.dropped += count
            self._drop_reason = reason

    def events(self) -> list[TraceEvent]:
        """What the queue holds, oldest first, without removing it: the memory sink's reading."""
        drops = self.dropped
        lost = [self.row(EventKind.DROPPED, drops, "ring overwritten")] if drops else []
        return [TraceEvent._make(row) for row in (*lost, *self._queue.copy())]

    def table(self) -> "pa.Table":
        """`events()` as an Arrow table with the one schema."""
        import pyarrow as pa  # noqa: PLC0415 - only where traces are read

        from chronik.trace.batches import to_batch  # noqa: PLC0415

        return pa.Table.from_batches([to_batch(self.events())])

    def _make_room(self) -> bool:
        """Counts a drop; a ring loses its oldest event, a queue refuses the newest."""
        self.count_lost(1, "queue full")
        if self._keep_newest:
            self.take(1)
        return self._keep_newest


OFF = Tracer(-1, _no_clock, _no_clock, on=False)
"""The tracer of a node without traces: `OFF.on` is all that anyone reads."""
