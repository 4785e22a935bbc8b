"""Events as bytes: whatever is packed is read back, as Python values and as Arrow columns."""

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.trace import names
from chronik.trace.columns import ROWS_MAX, Columns
from chronik.trace.events import EventKind, TraceEvent
from chronik.trace.packed import FIELDS, NUMBERS, WIDTH, pack_two, shape
from chronik.trace.reader import events
from chronik.trace.schema import COLUMNS, arrow_schema
from chronik.trace.tracer import RING_SLACK, Tracer

NODE, NOW_NS, AHEAD_NS = 3, 77, 1_700_000_000_000_000_000
BITS = {"int16": 16, "int32": 32, "int64": 64}


def tracer(**bounds: Any) -> Tracer:
    return Tracer(NODE, lambda: NOW_NS + AHEAD_NS, lambda: NOW_NS, **bounds)


def column_values(type_name: str) -> st.SearchStrategy[int | str | None]:
    if type_name == "string":
        return st.none() | st.text(max_size=5) | st.sampled_from(["orders", "grün", "", "日本\0"])
    least, most = -(1 << BITS[type_name] - 1), (1 << BITS[type_name] - 1) - 1
    return st.none() | st.sampled_from([least, most, -1, 0, 1]) | st.integers(least, most)


EVENTS = st.builds(
    TraceEvent,
    st.just(NOW_NS + AHEAD_NS),
    st.just(NOW_NS),
    st.just(NODE),
    st.sampled_from(EventKind),
    *[column_values(type_name) for _, type_name in COLUMNS[4:]],
)


def emit(subject: Tracer, event: TraceEvent) -> None:
    subject.emit(EventKind(event.kind), *event[4:])


@given(st.lists(EVENTS, max_size=6))
def test_any_events_are_read_back_as_they_were(found: list[TraceEvent]) -> None:
    subject = tracer()
    for event in found:
        emit(subject, event)
    assert subject.events() == found
    assert events(subject.table()) == found
    (*batches,) = Columns().batches(subject.take_packed(100))
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(), check_metadata=True)
    assert [event for batch in batches for event in events(batch)] == found
    assert (len(subject), subject.dropped) == (0, 0)


@pytest.mark.parametrize("kind", list(EventKind))
def test_every_kind_with_one_column_and_with_all_but_one(kind: EventKind) -> None:
    """Side by side, so that each column has a value in one row and none in its neighbours."""
    values = [
        place if name != "string" else f"at {place}" for place, (_, name) in enumerate(COLUMNS)
    ]
    full = TraceEvent._make((NOW_NS + AHEAD_NS, NOW_NS, NODE, kind, *values[4:]))
    empty = TraceEvent(*full[:4])
    expected = [full, empty]
    for name, _ in COLUMNS[4:]:
        for event, value in ((full, None), (empty, getattr(full, name))):
            only: dict[str, Any] = {name: value}
            expected.append(event._replace(**only))
    subject = tracer()
    for event in expected:
        emit(subject, event)
    assert subject.events() == expected
    assert events(subject.table()) == expected


UNFIT: list[dict[str, Any]] = [
    {"base_offset": 1 << 63},
    {"partition": -(1 << 31) - 1},
    {"acks": 1 << 15},
    {"client_id": "\udcff"},
    {"detail": 7},
    {"producer_id": "seven"},
]


@pytest.mark.parametrize("columns", UNFIT, ids=lambda columns: next(iter(columns)))
def test_fm62_a_value_that_fits_no_column_costs_its_own_event(columns: dict[str, Any]) -> None:
    subject = tracer()
    subject.emit(EventKind.ACKED, base_offset=1)
    subject.emit(EventKind.ACKED, **columns)
    subject.emit(EventKind.ACKED, base_offset=2)
    assert [event.base_offset for event in subject.take(9)] == [1, 2]
    drops = subject.take_drops()
    assert drops is not None
    assert drops.record_count == 1
    assert drops.detail


def test_more_rows_than_a_batch_holds_stay_in_their_order() -> None:
    subject, count = tracer(), 2 * ROWS_MAX + 5
    acked, empty = shape(EventKind.ACKED, "base_offset"), shape(EventKind.FETCH_EMPTY)
    both = pack_two(acked, empty)
    for offset in range(count):
        subject.put(both(NOW_NS, offset, acked.number, NOW_NS, empty.number))
    batches = Columns().batches(subject.take_packed(2 * count))
    assert [batch.num_rows for batch in batches] == [ROWS_MAX] * 4 + [10]
    offsets = [one for batch in batches for one in batch.column("base_offset").to_pylist()]
    assert offsets == [one for offset in range(count) for one in (offset, None)]


def test_a_row_has_a_place_for_all_that_is_not_the_same_for_its_neighbours() -> None:
    assert {*FIELDS, "time_ns", "node", "kind"} == set(TraceEvent._fields)
    assert set(NUMBERS) < set(FIELDS)
    assert len(shape(EventKind.STARTED).pack(1, 0)) == WIDTH
    with pytest.raises(AssertionError):
        shape(EventKind.ACKED, "partition", "base_offset")


# -- texts


@pytest.fixture
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "TRACE_TEXTS_MAX", 4)


@pytest.mark.usefixtures("few_texts")
@pytest.mark.parametrize("taken_at_once", [1, 3, 50])
def test_of_many_topics_each_event_has_its_own(taken_at_once: int) -> None:
    subject, columns = tracer(), Columns()
    topics, found = [f"topic {number}" for number in range(200)], []
    for place, topic in enumerate(topics):
        subject.emit(EventKind.ACKED, topic, client_id=topics[place // 2], detail="same for all")
        if place % taken_at_once == 0:
            for batch in columns.batches(subject.take_packed(taken_at_once)):
                found += events(batch)
        assert len(subject.names) <= 20 + 3 * (taken_at_once + len(subject))
    found += subject.take(1_000)
    assert [event.topic for event in found] == topics
    assert [event.client_id for event in found] == [topics[n // 2] for n in range(200)]
    assert {event.detail for event in found} == {"same for all"}
    assert subject.dropped == 0


@pytest.mark.usefixtures("few_texts")
def test_a_ring_forgets_the_texts_of_what_it_overwrote() -> None:
    subject = tracer(events_max=10, keep_newest=True)
    for number in range(10_000):
        subject.emit(EventKind.ACKED, f"topic {number}", detail="same for all")
    newest = [(f"topic {number}", "same for all") for number in range(9_990, 10_000)]
    assert [(event.topic, event.detail) for event in subject.events()[1:]] == newest
    assert [(e.topic, e.detail) for e in events(subject.table())[1:]] == newest
    assert len(subject.names) <= RING_SLACK + 50


def test_long_texts_count_by_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "TRACE_TEXT_CHARS_MAX", 1_000)
    subject = tracer()
    for number in range(100):
        subject.emit(EventKind.ACKED, f"{number:0400d}")
        assert [event.topic for event in subject.take(1)] == [f"{number:0400d}"]
    assert len(subject.names) <= 9


def test_threads_that_bring_new_texts_at_once_get_each_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names, "TRACE_TEXTS_MAX", 1_000)
    subject = tracer()

    def emit_many(thread: int) -> None:
        for number in range(500):
            subject.emit(EventKind.ACKED, f"{thread}/{number}", thread, base_offset=number)

    threads = [threading.Thread(target=emit_many, args=(thread,)) for thread in range(4)]
    for one in threads:
        one.start()
    found: list[TraceEvent] = []
    while any(one.is_alive() for one in threads):
        found += subject.take(100)
    found += subject.take(10_000)
    assert len(found) == 2_000
    assert all(event.topic == f"{event.partition}/{event.base_offset}" for event in found)
