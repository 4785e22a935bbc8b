"""Diagnoses of Chronik's own traces."""

from pathlib import Path
from typing import Any

from chronik.audit.diagnose import diagnose_traces
from chronik.audit.diagnosis import NOT_ENOUGH_EVIDENCE, Diagnosis
from chronik.audit.trace_rules import diagnose_events
from chronik.model.errors import ErrorCode
from chronik.trace.events import EventKind, TraceEvent

SECOND = 1_000_000_000


def event(kind: EventKind, at: float = 0.0, node: int = 1, **fields: Any) -> TraceEvent:
    at_ns = int(at * SECOND)
    base = TraceEvent(at_ns, at_ns, node, kind, topic="t", partition=0, leader_epoch=1)
    return base._replace(**fields)


def appended(base: int, last: int, at: float = 0.0, **fields: Any) -> TraceEvent:
    return event(EventKind.APPENDED, at, base_offset=base, last_offset=last, **fields)


def acked(base: int, at: float = 0.0, **fields: Any) -> TraceEvent:
    return event(EventKind.ACKED, at, base_offset=base, acks=-1, error_code=0, **fields)


def diagnosis(*events: TraceEvent) -> Diagnosis:
    return diagnose_events(events, "trace")


def test_a_healthy_path_has_no_cause() -> None:
    found = diagnosis(
        event(EventKind.RECEIVED, 0),
        appended(0, 9, 1),
        event(EventKind.FSYNCED, 2, log_end=10),
        event(EventKind.WATERMARK, 3, high_watermark=10),
        acked(0, 4),
    )
    assert found.cause == NOT_ENOUGH_EVIDENCE


def test_fm20_overlapping_appends_are_offsets_given_twice() -> None:
    found = diagnosis(appended(0, 214), appended(215, 429), appended(0, 166))
    assert found.cause == "offset-assigned-twice"
    assert [line.line for line in found.causes[0].evidence] == [1, 3]


def test_offsets_are_free_again_after_a_cut_or_in_a_later_epoch() -> None:
    cut = event(EventKind.TRUNCATED, log_end=5)
    assert diagnosis(appended(0, 9), cut, appended(5, 9)).cause == NOT_ENOUGH_EVIDENCE
    later = appended(5, 9, node=2, leader_epoch=2)
    assert diagnosis(appended(0, 9), later).cause == NOT_ENOUGH_EVIDENCE


def test_fm22_a_watermark_that_moved_back_is_a_cause_and_a_follower_behind_is_not() -> None:
    first = event(EventKind.WATERMARK, 1, high_watermark=430)
    back = event(EventKind.WATERMARK, 2, high_watermark=215)
    assert diagnosis(first, back).cause == "watermark-regression"
    behind = back._replace(node=2)
    assert diagnosis(first, behind).cause == NOT_ENOUGH_EVIDENCE


def test_fm31_an_ack_without_an_append_is_found_unless_events_are_missing() -> None:
    assert diagnosis(appended(0, 9), acked(10)).cause == "ack-without-append"
    refused = acked(10)._replace(error_code=int(ErrorCode.REQUEST_TIMED_OUT))
    assert diagnosis(refused).cause == NOT_ENOUGH_EVIDENCE
    dropped = event(EventKind.DROPPED, record_count=3)
    found = diagnosis(acked(10), dropped)
    assert found.cause == NOT_ENOUGH_EVIDENCE
    assert found.missing


def test_fm32_an_ack_before_the_disk_or_the_replicas_is_found() -> None:
    synced = event(EventKind.FSYNCED, 3, log_end=10)
    moved = event(EventKind.WATERMARK, 3, high_watermark=10)
    early = acked(0, 2)
    assert diagnosis(appended(0, 9, 1), early, synced).cause == "ack-before-fsync"
    assert diagnosis(appended(0, 9, 1), early, moved).cause == "ack-before-replication"
    assert diagnosis(appended(0, 9, 1), synced, moved, acked(0, 4)).cause == NOT_ENOUGH_EVIDENCE


def test_fm25_a_watermark_that_stays_while_appends_go_on() -> None:
    moved = event(EventKind.WATERMARK, 1, high_watermark=10)
    found = diagnosis(appended(0, 9, 0), moved, appended(10, 19, 3), appended(20, 29, 8))
    assert found.cause == "watermark-not-advancing"


def test_a_fetch_that_found_data_and_was_never_answered() -> None:
    request = {"connection_id": 4, "correlation_id": 9}
    data = event(EventKind.FETCH_DATA, 1, **request)
    later = event(EventKind.FETCH_EMPTY, 9, connection_id=5, correlation_id=1)
    assert diagnosis(data, later).cause == "fetch-hanging"
    served = event(EventKind.FETCH_SERVED, 2, **request)
    assert diagnosis(data, served, later).cause == NOT_ENOUGH_EVIDENCE


def test_a_fetch_that_a_crash_cut_off_is_not_hanging() -> None:
    found = diagnosis(
        event(EventKind.STARTED, 0),
        event(EventKind.FETCH_DATA, 1, connection_id=4, correlation_id=9),
        event(EventKind.STARTED, 9),
        event(EventKind.STOPPED, 20),
    )
    assert found.cause == NOT_ENOUGH_EVIDENCE
    in_order = diagnosis(
        event(EventKind.STARTED, 0), event(EventKind.STOPPED, 1), event(EventKind.STARTED, 2)
    )
    assert not any("killed" in text for text in in_order.missing)


def test_rejections_are_counted_per_node() -> None:
    code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    found = diagnosis(
        event(EventKind.RECEIVED),
        event(EventKind.RECEIVED),
        event(EventKind.REJECTED, error_code=code),
    )
    assert found.cause == "leader-rejections"
    assert "1 of 2 at node 1" in found.causes[0].statement


def test_an_empty_directory_is_not_enough(tmp_path: Path) -> None:
    assert diagnose_traces(tmp_path).cause == NOT_ENOUGH_EVIDENCE
