"""Each value of a partition's trace events is in its own column, also where others look alike."""

from types import SimpleNamespace
from typing import Any

from chronik.broker.evidence import (
    APPENDED,
    FOLLOWER_APPENDED,
    trace_append,
    trace_durable,
    trace_replicated,
    trace_watermark,
)
from chronik.replica.state import Appended
from chronik.trace.events import EventKind, TraceEvent
from chronik.trace.tracer import Tracer
from chronik.wire.records import BatchHeader

STATE = SimpleNamespace(leader_epoch=4, high_watermark=70, log_end=90, durable_end=80)
PARTITION: Any = SimpleNamespace(topic="t", index=3, state=STATE, sync=True)
APPEND = Appended(
    memoryview(b""),
    base_offset=60,
    last_offset=64,
    max_timestamp=1,
    leader_epoch=5,
    size=123,
    producer_id=11,
    former=None,
)
HEADER = BatchHeader(20, 21, 22, 23, 24, 25, 26, 27, 28, 11, 12, base_sequence=13, record_count=6)


def tracer() -> Tracer:
    return Tracer(1, lambda: 1_000, lambda: 10)


def test_an_append() -> None:
    seen = tracer()
    trace_append(seen, APPENDED, PARTITION, APPEND, HEADER)
    trace_append(seen, FOLLOWER_APPENDED, PARTITION, APPEND, HEADER)
    expected = TraceEvent(
        time_ns=1_000,
        mono_ns=10,
        node=1,
        kind=EventKind.APPENDED,
        topic="t",
        partition=3,
        leader_epoch=5,
        base_offset=60,
        last_offset=64,
        record_count=6,
        bytes=123,
        high_watermark=70,
        log_end=90,
        producer_id=11,
        producer_epoch=12,
        base_sequence=13,
    )
    followed = expected._replace(kind=EventKind.FOLLOWER_APPENDED)
    assert seen.events() == [expected, followed]


def test_what_the_disk_has_and_the_watermark_that_moved_by_it() -> None:
    seen = tracer()
    trace_durable(seen, PARTITION, 77, moved=True)
    fsynced = TraceEvent(1_000, 10, 1, EventKind.FSYNCED, "t", 3, 4)
    watermark = fsynced._replace(kind=EventKind.WATERMARK, high_watermark=70, log_end=90)
    fsynced = fsynced._replace(log_end=80, duration_us=77, detail="fsync")
    assert seen.events() == [fsynced, watermark]


def test_a_watermark_that_stayed_is_no_event() -> None:
    seen = tracer()
    trace_durable(seen, PARTITION, 77, moved=False)
    assert [event.kind for event in seen.events()] == [EventKind.FSYNCED]


def test_what_a_follower_has_and_the_watermark_that_moved_by_it() -> None:
    seen = tracer()
    trace_replicated(seen, PARTITION, 2, 75)
    trace_watermark(seen, PARTITION)
    replicated = TraceEvent(1_000, 10, 1, EventKind.REPLICATED, "t", 3, 4, log_end=75, peer=2)
    moved = TraceEvent(1_000, 10, 1, EventKind.WATERMARK, "t", 3, 4, high_watermark=70, log_end=90)
    assert seen.events() == [replicated, moved]


def test_fm62_a_number_that_fits_no_column_costs_its_events_and_never_the_partition() -> None:
    seen = tracer()
    strange: Any = SimpleNamespace(topic="t", index=1 << 40, state=STATE, sync=True)
    trace_append(seen, APPENDED, strange, APPEND, HEADER)
    trace_durable(seen, strange, 77, moved=True)
    trace_durable(seen, strange, 77, moved=False)
    trace_watermark(seen, strange)
    trace_replicated(seen, strange, 2, 75)
    assert (len(seen), seen.dropped) == (0, 6)
