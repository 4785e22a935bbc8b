"""Causes on the way in, each with the history that shows it and those that must not."""

from typing import Any

from chronik.audit.diagnosis import NOT_ENOUGH_EVIDENCE
from chronik.audit.trace_rules import diagnose_events
from chronik.trace.events import EventKind, TraceEvent

BASE = TraceEvent(0, 0, 1, EventKind.STARTED)


def event(kind: EventKind, **fields: Any) -> TraceEvent:
    placed = BASE._replace(kind=kind, topic="t", partition=0, leader_epoch=1)
    return placed._replace(**fields)


def appended(base: int, last: int, **fields: Any) -> TraceEvent:
    return event(EventKind.APPENDED, base_offset=base, last_offset=last, **fields)


def sequenced(base: int, sequence: int, **fields: Any) -> TraceEvent:
    """Ten records of an idempotent producer."""
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
    return appended(base, base + 9, **producer, **fields)


def acked(base: int, correlation: int, connection: int | None = 5000) -> TraceEvent:
    request = {"connection_id": connection, "correlation_id": correlation, "client_id": "c"}
    return event(EventKind.ACKED, base_offset=base, acks=1, error_code=0, **request)


def cause(*events: TraceEvent) -> str:
    """With times in the order given."""
    timed = [one._replace(time_ns=n, mono_ns=n) for n, one in enumerate(events, 1)]
    return diagnose_events(timed, "trace").cause


STARTED, STOPPED = BASE, BASE._replace(kind=EventKind.STOPPED)
CUT = event(EventKind.TRUNCATED, log_end=0)
IN_ORDER = [appended(n, n + 9) for n in range(10, 70, 10)]


def test_overlaps_at_the_first_batch_only_show_a_state_that_was_created_twice() -> None:
    assert cause(appended(0, 9), appended(0, 9), *IN_ORDER) == "partition-state-twice"


def test_a_later_overlap_or_too_few_appends_show_offsets_given_twice() -> None:
    later = appended(60, 69)
    assert cause(appended(0, 9), appended(0, 9), *IN_ORDER, later) == "offset-assigned-twice"
    assert cause(appended(0, 9), appended(0, 9)) == "offset-assigned-twice"


def test_offsets_that_the_disk_refused_are_given_again_by_right() -> None:
    assert cause(appended(0, 9), CUT, appended(0, 9)) == NOT_ENOUGH_EVIDENCE


def test_synced_and_committed_offsets_that_are_free_after_a_restart_were_lost() -> None:
    synced = event(EventKind.FSYNCED, log_end=10, detail="fsync")
    moved = event(EventKind.WATERMARK, high_watermark=10)
    first = (STARTED, appended(0, 9), synced, moved)
    assert cause(*first, STARTED, appended(0, 9)) == "fsync-lost"
    assert cause(*first, STOPPED, STARTED, appended(0, 9)) == "fsync-lost"
    assert cause(*first, STARTED, appended(10, 19)) == NOT_ENOUGH_EVIDENCE


def test_a_restart_may_lose_what_was_not_synced_or_not_committed() -> None:
    unsynced = event(EventKind.FSYNCED, log_end=10, detail="os")
    synced = unsynced._replace(detail="fsync")
    moved = event(EventKind.WATERMARK, high_watermark=10)
    again = (STARTED, appended(0, 9))
    assert cause(STARTED, appended(0, 9), unsynced, moved, *again) == NOT_ENOUGH_EVIDENCE
    assert cause(STARTED, appended(0, 9), synced, *again) == NOT_ENOUGH_EVIDENCE


def test_one_sequence_at_two_offsets_is_a_retry_that_was_appended_again() -> None:
    assert cause(sequenced(0, 0), sequenced(10, 0)) == "duplicate-append"
    assert cause(sequenced(0, 0), sequenced(10, 10)) == NOT_ENOUGH_EVIDENCE
    other = sequenced(10, 0)._replace(producer_id=8)
    assert cause(sequenced(0, 0), other) == NOT_ENOUGH_EVIDENCE
    assert cause(sequenced(10, 0), CUT, sequenced(0, 0)) == NOT_ENOUGH_EVIDENCE
    elsewhere = sequenced(10, 0, leader_epoch=2, node=2)
    assert cause(sequenced(0, 0), elsewhere) == NOT_ENOUGH_EVIDENCE


def test_sequences_that_fall_along_the_log_are_out_of_order() -> None:
    assert cause(sequenced(0, 10), sequenced(10, 0)) == "appended-out-of-sequence"
    renewed = sequenced(10, 0)._replace(producer_epoch=1)
    assert cause(sequenced(0, 10), renewed) == NOT_ENOUGH_EVIDENCE


def test_requests_of_one_connection_are_appended_in_order() -> None:
    batches = (appended(0, 9, producer_id=-1), appended(10, 19, producer_id=-1))
    assert cause(*batches, acked(10, 1), acked(0, 2)) == "appended-out-of-sequence"
    assert cause(*batches, acked(0, 1), acked(10, 2)) == NOT_ENOUGH_EVIDENCE
    assert cause(*batches, acked(10, 1), acked(0, 2, connection=6000)) == NOT_ENOUGH_EVIDENCE
    assert cause(*batches, acked(10, 1, None), acked(0, 2, None)) == NOT_ENOUGH_EVIDENCE


def test_a_duplicate_may_be_answered_with_its_old_offset() -> None:
    batches = (sequenced(0, 0), sequenced(10, 10))
    assert cause(*batches, acked(0, 1), acked(10, 2), acked(0, 3)) == NOT_ENOUGH_EVIDENCE
