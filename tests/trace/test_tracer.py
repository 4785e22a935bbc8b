"""The hot path: what it keeps, what it drops, and that it costs nothing when off."""

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.model.limits import TRACE_EVENTS_QUEUED_MAX
from chronik.trace import fetch_rows
from chronik.trace.events import EventKind, TraceEvent, trace_id
from chronik.trace.fetch_rows import FetchRows
from chronik.trace.packed import pack_two, shape
from chronik.trace.reader import events
from chronik.trace.schema import COLUMNS, VERSION_KEY, arrow_schema, kind_names
from chronik.trace.settings import TraceSettings
from chronik.trace.sinks import open_trace
from chronik.trace.tracer import OFF, RING_SLACK, Tracer

AHEAD = 1_000_000
"""So much the wall clock of these tests is ahead."""


def ticking() -> Callable[[], int]:
    ticks = itertools.count(1)
    return lambda: next(ticks)


class Watch:
    """Two clocks that go on when they are told to."""

    now = 1

    def mono_ns(self) -> int:
        return self.now

    def wall_ns(self) -> int:
        return self.now + AHEAD


def tracer(events_max: int = 100, keep_newest: bool = False, watch: Watch | None = None) -> Tracer:
    watch = watch or Watch()
    bounds: Any = {"events_max": events_max, "keep_newest": keep_newest}
    return Tracer(7, watch.wall_ns, watch.mono_ns, **bounds)


def test_an_event_carries_its_clocks_node_and_columns() -> None:
    subject = tracer()
    subject.emit(EventKind.APPENDED, "orders", 3, base_offset=10, last_offset=19, client_id="c")
    (event,) = subject.events()
    expected = TraceEvent(AHEAD + 1, 1, 7, EventKind.APPENDED, "orders", 3, base_offset=10)
    assert event == expected._replace(last_offset=19, client_id="c")


def test_the_wall_clock_is_as_far_ahead_as_it_is_when_the_events_are_taken() -> None:
    """Even where the process was stopped for a while between a look at one clock and the other."""
    pauses = itertools.chain([50_000], itertools.repeat(10))
    watch = Watch()

    def wall_ns() -> int:
        watch.now += next(pauses)
        found = watch.wall_ns()
        watch.now += 10
        return found

    subject = Tracer(7, wall_ns, watch.mono_ns)
    for _ in range(3):
        subject.emit(EventKind.ACKED)
        watch.now += 1_000
    assert [(e.time_ns - AHEAD, e.mono_ns) for e in subject.take(3)] == [
        (1, 1),
        (1_001, 1_001),
        (2_001, 2_001),
    ]


def test_every_column_of_the_schema_is_an_argument_of_emit_in_its_place() -> None:
    subject = tracer()
    values: list[int | str] = [
        f"text {index}" if type_name == "string" else index
        for index, (_, type_name) in enumerate(COLUMNS)
    ]
    names = [name for name, _ in COLUMNS]
    subject.emit(EventKind.ERROR, **dict(zip(names[4:], values[4:], strict=True)))  # type: ignore[arg-type]
    (event,) = subject.events()
    assert list(event)[4:] == values[4:]


def test_the_events_of_a_fetch_share_who_asked_and_the_clocks_of_a_look() -> None:
    watch = Watch()
    subject = tracer(watch=watch)
    who_asked = {"client_id": "c", "connection_id": 8, "correlation_id": 9}
    rows = FetchRows(subject, -2_999, **who_asked, asked="asked")  # type: ignore[arg-type]
    rows.start("orders", 3, 10)
    rows.start_and_look("orders", 3, 10, 5, 6)
    rows.add(fetch_rows.WATERMARK, "orders", 3, 10, 5, 6)
    rows.add(fetch_rows.DATA, "orders", 3, 10, 4, 5, 6)
    rows.add(fetch_rows.REJECTED, "orders", 3, 10, 5, 6, code=(7,))
    watch.now = 2
    rows.look()
    rows.add(fetch_rows.SERVED, "orders", 3, 10, 11)
    rows.add(fetch_rows.EMPTY, None, 3, 10, 0)
    rows.add(fetch_rows.SERVED, "orders", 3, 1 << 70, 11)
    rows.start_and_look("orders", 3, 10, 5, 1 << 70)
    who = {**who_asked, "base_offset": 10}
    start = TraceEvent(AHEAD + 1, 1, 7, 20, "orders", 3, duration_us=3, **who)  # type: ignore[arg-type]
    levels = start._replace(high_watermark=5, log_end=6)
    served = start._replace(time_ns=AHEAD + 2, mono_ns=2, kind=24, bytes=11)
    assert subject.events()[1:] == [
        start._replace(detail="asked"),
        start._replace(detail="asked"),
        levels._replace(kind=21),
        levels._replace(kind=21),
        levels._replace(kind=22, bytes=4),
        levels._replace(kind=16, error_code=7),
        served,
        served._replace(kind=23, topic=None, bytes=0),
    ]
    assert subject.dropped == 3, "of the two that did not fit, one was of two events"


def test_fm62_events_that_are_packed_already_are_counted_when_the_queue_is_full() -> None:
    acked = shape(EventKind.ACKED, "base_offset")
    both = pack_two(acked, acked)
    subject, ring = tracer(events_max=3), tracer(events_max=3, keep_newest=True)
    for offset in range(0, 10, 2):
        for one in (subject, ring):
            one.put(both(1, offset, acked.number, 1, offset + 1, acked.number))
    assert [row.base_offset for row in subject.take(9)] == [0, 1, 2, 3, 4, 5]  # of three puts
    assert [event.base_offset for event in ring.events()[1:]] == [7, 8, 9]
    assert (subject.dropped, ring.dropped) == (4, 7)


def test_the_ring_reads_back_as_a_table_with_the_one_schema() -> None:
    subject = tracer()
    for offset in range(5):
        subject.emit(EventKind.ACKED, "t", 0, base_offset=offset, detail="grün")
    table = subject.table()
    assert table.schema.equals(arrow_schema(), check_metadata=True)
    assert events(table) == subject.events()
    assert tracer().table().num_rows == 0


def test_the_schema_explains_itself() -> None:
    schema = arrow_schema()
    assert schema.names == list(TraceEvent._fields)
    assert [field.nullable for field in schema][:5] == [False, False, False, False, True]
    assert (schema.metadata or {})[VERSION_KEY] == b"1"
    assert kind_names(schema) == {int(kind): kind.name.lower() for kind in EventKind}


def test_fm62_a_full_queue_counts_what_it_refuses_and_reports_it_once() -> None:
    subject = tracer(events_max=3)
    for offset in range(10):
        subject.emit(EventKind.ACKED, "t", 0, base_offset=offset)
    assert len(subject) == 3
    assert [row.base_offset for row in subject.take(100)] == [0, 1, 2]
    drops = subject.take_drops()
    assert drops is not None
    assert (drops.kind, drops.record_count, drops.detail) == (EventKind.DROPPED, 7, "queue full")
    assert subject.take_drops() is None
    assert subject.dropped == 7


def test_fm62_drops_that_could_not_be_reported_are_reported_later() -> None:
    subject = tracer(events_max=1)
    for _ in range(4):
        subject.emit(EventKind.ACKED)
    drops = subject.take_drops()
    assert drops is not None
    subject.return_drops(drops)
    again = subject.take_drops()
    assert again is not None
    assert again.record_count == 3


@pytest.mark.parametrize("count", [3, 4, 10, RING_SLACK + 2, RING_SLACK + 4, 3 * RING_SLACK])
def test_fm62_a_ring_keeps_the_newest_and_says_how_many_it_overwrote(count: int) -> None:
    subject = tracer(events_max=3, keep_newest=True)
    for offset in range(count):
        subject.emit(EventKind.ACKED, "t", 0, base_offset=offset)
        assert len(subject) == min(3, offset + 1)
        assert subject.dropped == max(0, offset - 2)
    found = subject.events()
    assert subject.table().num_rows == len(found)
    assert [event.base_offset for event in found[-3:]] == [count - 3, count - 2, count - 1]
    lost = [(event.kind, event.record_count) for event in found[:-3]]
    assert lost == ([(EventKind.DROPPED, count - 3)] if count > 3 else [])


@given(st.integers(1, 20), st.lists(st.integers(0, 30), max_size=30))
def test_fm62_every_emit_is_taken_waiting_or_counted(bound: int, steps: list[int]) -> None:
    subject = tracer(events_max=bound)
    emitted = taken = 0
    for step in steps:
        for _ in range(step):
            subject.emit(EventKind.RECEIVED)
        emitted += step
        taken += len(subject.take(step // 2))
        assert len(subject) <= bound
        assert emitted == taken + len(subject) + subject.dropped


def test_no_event_is_lost_between_threads_that_emit_and_one_that_takes() -> None:
    subject = Tracer(1, ticking(), ticking(), events_max=1_000_000)

    def emit_many() -> None:
        for _ in range(2_000):
            subject.emit(EventKind.FSYNCED)

    threads = [threading.Thread(target=emit_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    taken = 0
    while any(thread.is_alive() for thread in threads):
        taken += len(subject.take(100))
    assert taken + len(subject.take(1_000_000)) == 8_000
    assert subject.dropped == 0


def test_off_is_one_shared_object_without_clock_thread_or_queue() -> None:
    before = threading.active_count()
    trace = open_trace(TraceSettings(), 1, ticking(), ticking())
    assert trace.tracer is OFF
    assert not OFF.on
    assert trace.writer is None
    assert threading.active_count() == before
    assert trace.flush()
    trace.close()
    assert len(OFF) == 0


def test_off_and_memory_load_no_pyarrow() -> None:
    code = (
        "import sys, time; from chronik.trace.settings import TraceSettings;"
        "from chronik.trace.sinks import open_trace;"
        "from chronik.trace.events import EventKind;"
        "open_trace(TraceSettings(), 1, time.time_ns, time.time_ns);"
        "t = open_trace(TraceSettings('memory'), 1, time.time_ns, time.time_ns).tracer;"
        "t.emit(EventKind.ACKED); assert len(t.events()) == 1;"
        "assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_default_bound_is_the_named_limit() -> None:
    assert Tracer(1, ticking(), ticking()).events_max == TRACE_EVENTS_QUEUED_MAX
    assert trace_id(1, 22, 333) == "1-22-333"
