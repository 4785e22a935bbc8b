"""Causes on the way out, each with the history that shows it and those that must not."""

from typing import Any

from chronik.audit.diagnosis import NOT_ENOUGH_EVIDENCE
from chronik.audit.trace_rules import diagnose_events
from chronik.trace.events import EventKind, TraceEvent

SECOND = 1_000_000_000


def event(kind: EventKind, at: float, node: int = 1, **fields: Any) -> TraceEvent:
    at_ns = int(at * SECOND)
    base = TraceEvent(at_ns, at_ns, node, kind, topic="t", partition=0, leader_epoch=1)
    return base._replace(**fields)


def appended(base: int, at: float) -> TraceEvent:
    return event(EventKind.APPENDED, at, base_offset=base, last_offset=base + 9, high_watermark=0)


def moved(level: int, at: float) -> TraceEvent:
    return event(EventKind.WATERMARK, at, high_watermark=level)


def fetch(kind: EventKind, base: int, at: float, **fields: Any) -> TraceEvent:
    request = {"client_id": "c", "connection_id": 5000, "correlation_id": 9}
    return event(kind, at, base_offset=base, **{**request, **fields})


def cause(*events: TraceEvent, frozen_s: float = 5.0) -> str:
    return diagnose_events(events, "trace", int(frozen_s * SECOND)).cause


def test_a_watermark_that_comes_late_is_not_advancing_even_if_it_comes() -> None:
    late = (appended(0, 0), moved(10, 6))
    assert cause(*late) == "watermark-not-advancing"
    assert cause(*late, frozen_s=7.0) == NOT_ENOUGH_EVIDENCE
    assert cause(appended(0, 0), moved(10, 1), appended(10, 8), moved(20, 9)) == NOT_ENOUGH_EVIDENCE


def test_a_watermark_may_be_lower_after_a_restart() -> None:
    start = event(EventKind.STARTED, 0)
    again = event(EventKind.STARTED, 2)
    assert cause(start, moved(10, 1), again, moved(8, 3)) == NOT_ENOUGH_EVIDENCE
    assert cause(start, moved(10, 1), moved(8, 3)) == "watermark-regression"


def test_data_that_is_not_committed_must_not_be_served_to_consumers() -> None:
    data = fetch(EventKind.FETCH_DATA, 10, 2)
    served = fetch(EventKind.FETCH_SERVED, 10, 2.1)
    before = (appended(0, 0), moved(10, 1), appended(10, 1.5))
    assert cause(*before, data, served) == "served-above-watermark"
    assert cause(*before, moved(20, 1.8), data, served) == NOT_ENOUGH_EVIDENCE
    follower = (data._replace(peer=2), served._replace(peer=2))
    assert cause(*before, *follower) == NOT_ENOUGH_EVIDENCE


def test_what_was_committed_before_the_trace_began_is_not_judged() -> None:
    data = fetch(EventKind.FETCH_DATA, 10, 2)
    assert cause(data, fetch(EventKind.FETCH_SERVED, 10, 2.1)) == NOT_ENOUGH_EVIDENCE


def test_a_fetch_that_sleeps_on_while_data_is_committed_hangs() -> None:
    start = fetch(EventKind.FETCH_START, 0, 0, detail="min_bytes=1 max_wait_ms=9000")
    served = fetch(EventKind.FETCH_SERVED, 0, 7)
    assert cause(start, appended(0, 1), moved(10, 1.1), served) == "fetch-hanging"
    late_data = (appended(0, 6), moved(10, 6.1))
    assert cause(start, *late_data, served) == NOT_ENOUGH_EVIDENCE
    patient = start._replace(detail="min_bytes=1000 max_wait_ms=9000")
    assert cause(patient, appended(0, 1), moved(10, 1.1), served) == NOT_ENOUGH_EVIDENCE


def test_a_follower_that_is_sent_the_same_data_again_and_again_refuses_it() -> None:
    nodes = (event(EventKind.STARTED, 0, 1), event(EventKind.STARTED, 0, 2))
    sent = [fetch(EventKind.FETCH_SERVED, 0, at, peer=2) for at in (1, 2, 3)]
    assert cause(*nodes, *sent) == "follower-refuses-data"
    taken = event(EventKind.FOLLOWER_APPENDED, 4, 2, base_offset=0, last_offset=9)
    assert cause(*nodes, *sent, taken) == NOT_ENOUGH_EVIDENCE
    assert cause(*nodes, *sent[:2]) == NOT_ENOUGH_EVIDENCE
    assert cause(nodes[0], *sent) == NOT_ENOUGH_EVIDENCE
