"""The hot path: one check when traces are off, one row of bytes and its append when on.

    if tracer.on:
        tracer.emit(EventKind.APPENDED, topic, partition, base_offset=base, ...)

`emit` never blocks and never raises; any thread may call it (a list's append is atomic).
The queue is bounded. When it is full, events are counted, and a `DROPPED` event tells how many.
Events on the path of every batch are packed where they happen (`packed.py`) and handed to `put`.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from chronik.model.limits import TRACE_EVENTS_QUEUED_MAX
from chronik.trace.events import EventKind, TraceEvent
from chronik.trace.names import Names
from chronik.trace.packed import UNFIT, WIDTH, Packed, pack_any, unpack

if TYPE_CHECKING:
    import pyarrow as pa

NanosClock = Callable[[], int]
RING_SLACK: Final = 1_024
"""A ring forgets so many of its oldest events at once, which is cheaper than each by itself."""
CLOCK_LOOKS: Final = 3


def _no_clock() -> int:
    raise AssertionError("a tracer that is off reads no clock")


class Tracer:
    """A bounded queue of events. `on` never changes after construction, so callers may keep it."""

    __slots__ = (
        "_drop_reason",
        "_keep_newest",
        "_lock",
        "_lost",
        "_puts_gone",
        "_puts_max",
        "_queue",
        "_reported",
        "_wall_ns",
        "events_max",
        "mono_ns",
        "names",
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
        self.mono_ns = mono_ns
        self._wall_ns = wall_ns
        self._lost = 0
        self._reported = 0
        self._drop_reason = ""
        self._queue: list[bytes] = []
        self._puts_gone = 0
        """Taken from the queue, or overwritten."""
        self._keep_newest = keep_newest
        self._puts_max = events_max + (RING_SLACK if keep_newest else 0)
        self._lock = threading.Lock()
        self.names = Names(self._puts_so_far)

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
        # fmt: off
        numbers = (  # in the order of `packed.NUMBERS`
            base_offset, last_offset, record_count, bytes, high_watermark, log_end, producer_id,
            connection_id, duration_us,
            partition, leader_epoch, base_sequence, correlation_id, peer,
            producer_epoch, acks, error_code,
        )
        # fmt: on
        number_of = self.names.numbers
        try:
            texts = number_of[topic], number_of[client_id], number_of[detail]
            row = pack_any(kind, self.mono_ns(), numbers, texts)
        except UNFIT as error:
            self.count_lost(1, str(error))
        else:
            self.put(row)

    def put(self, rows: bytes) -> None:
        """Queues what is packed already: one event, or two of one place."""
        queue = self._queue
        if len(queue) < self._puts_max:
            queue.append(rows)
        else:
            self._put_where_full(rows)

    def _put_where_full(self, rows: bytes) -> None:
        """A ring loses its oldest events, a queue refuses the newest."""
        if self._keep_newest:
            self._overwrite(RING_SLACK)
            self._queue.append(rows)
        else:
            self.count_lost(len(rows) // WIDTH, "queue full")

    @property
    def dropped(self) -> int:
        """Events that were refused, overwritten or could not be written."""
        return self._lost + self._excess(_count(self._queue))

    def __len__(self) -> int:
        """Events waiting."""
        count = _count(self._queue)
        return count - self._excess(count)

    @property
    def puts(self) -> int:
        """What `take` can remove: events, and twos of them that were put together."""
        return len(self._queue)

    def take(self, puts_max: int) -> list[TraceEvent]:
        """Removes the oldest events, of at most so many puts; for one consumer."""
        return unpack(self.take_packed(puts_max))

    def take_packed(self, puts_max: int) -> Packed:
        """As `take`, in the form that the writer wants; what it took before is forgotten now."""
        self.names.forget(self._puts_gone)
        queue = self._queue
        taken = queue[:puts_max]
        del queue[: len(taken)]
        self._puts_gone += len(taken)
        return self._packed(b"".join(taken))

    def take_drops(self) -> TraceEvent | None:
        """The `DROPPED` event for what was lost since the last call; None where nothing was."""
        with self._lock:
            count = self._lost - self._reported
            self._reported = self._lost
            reason = self._drop_reason
        return self.row(EventKind.DROPPED, count, reason) if count else None

    def return_drops(self, drops: TraceEvent) -> None:
        """The `DROPPED` event itself could not be written: the next one reports its count too."""
        with self._lock:
            self._reported -= drops.record_count or 0

    def row(self, kind: EventKind, record_count: int, detail: str) -> TraceEvent:
        """An event about the trace itself, made outside the queue."""
        now = (self._wall_ns(), self.mono_ns())
        return TraceEvent(*now, self.node, int(kind), record_count=record_count, detail=detail)

    def count_lost(self, count: int, reason: str) -> None:
        """Adds events lost for good; the next `DROPPED` reports them, with the last reason."""
        with self._lock:
            self._lost += count
            self._drop_reason = reason

    def events(self) -> list[TraceEvent]:
        """What the queue holds, oldest first, without removing it: the memory sink's reading."""
        return [*self._drops_so_far(), *unpack(self._waiting())]

    def table(self) -> "pa.Table":
        """`events()` as an Arrow table with the one schema."""
        import pyarrow as pa  # noqa: PLC0415 - only where traces are read

        from chronik.trace.batches import to_batch  # noqa: PLC0415
        from chronik.trace.columns import Columns  # noqa: PLC0415

        drops = to_batch(self._drops_so_far())
        return pa.Table.from_batches([drops, *Columns().batches(self._waiting())])

    def _drops_so_far(self) -> list[TraceEvent]:
        drops = self.dropped
        return [self.row(EventKind.DROPPED, drops, "ring overwritten")] if drops else []

    def _waiting(self) -> Packed:
        rows = b"".join(self._queue)
        return self._packed(rows[self._excess(len(rows) // WIDTH) * WIDTH :])

    def _packed(self, rows: bytes) -> Packed:
        first, texts = self.names.known()
        return Packed(rows, self.node, self._wall_ahead_ns(), first, texts)

    def _wall_ahead_ns(self) -> int:
        """By how much the wall clock is ahead of the other one now.

        A pause between the clocks would be in it: of some looks the shortest is the best.
        """
        looks = []
        for _ in range(CLOCK_LOOKS):
            before, wall, after = self.mono_ns(), self._wall_ns(), self.mono_ns()
            looks.append((after - before, wall - (before + after) // 2))
        return min(looks)[1]

    def _excess(self, count: int) -> int:
        """Events of a ring that are overwritten, and still there."""
        return max(0, count - self.events_max) if self._keep_newest else 0

    def _overwrite(self, puts: int) -> None:
        with self._lock:
            gone = self._queue[:puts]
            del self._queue[: len(gone)]
            self._lost += _count(gone)
            self._puts_gone += len(gone)
        self.names.forget(self._puts_gone)

    def _puts_so_far(self) -> int:
        return self._puts_gone + len(self._queue)


def _count(queue: list[bytes]) -> int:
    return sum(map(len, queue)) // WIDTH


OFF = Tracer(-1, _no_clock, _no_clock, on=False)
"""The tracer of a node without traces: `OFF.on` is all that anyone reads."""
