"""Where a missing message was lost, by the trace events of its way."""

import pytest

from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.where import Where, where_lost
from chronik.trace.events import EventKind, TraceEvent

SEND = Row(Kind.SEND, "p0", 1, 2, "t", 0, 5, sequence=0, outcome=Outcome.OK)
BASE = TraceEvent(0, 0, 1, EventKind.APPENDED, topic="t", partition=0)
APPENDED = BASE._replace(base_offset=0, last_offset=9)
AGAIN = BASE._replace(base_offset=5, last_offset=6)
COMMITTED = BASE._replace(kind=EventKind.WATERMARK, high_watermark=10)
SERVED = BASE._replace(kind=EventKind.FETCH_DATA, base_offset=0, last_offset=9)
DROPPED = BASE._replace(kind=EventKind.DROPPED, record_count=1)


@pytest.mark.parametrize(
    ("events", "where"),
    [
        ([], Where.NOT_APPENDED),
        ([DROPPED], Where.UNKNOWN),
        ([APPENDED], Where.NOT_COMMITTED),
        ([APPENDED, AGAIN], Where.OVERWRITTEN),
        ([APPENDED, COMMITTED], Where.NOT_SERVED),
        ([APPENDED, COMMITTED, DROPPED], Where.UNKNOWN),
        ([APPENDED, COMMITTED, SERVED], Where.NOT_CONSUMED),
        ([APPENDED, COMMITTED, SERVED._replace(last_offset=None)], Where.UNKNOWN),
        ([APPENDED, COMMITTED, SERVED._replace(base_offset=8)], Where.NOT_SERVED),
    ],
)
def test_the_last_arrow_says_where_it_was_lost(events: list[TraceEvent], where: Where) -> None:
    assert where_lost([SEND], events) == {where: 1}


def test_what_was_read_or_expired_is_not_lost() -> None:
    read = Row(Kind.RECORD, "c0", topic="t", partition=0, offset=5, sender="p0", sequence=0)
    assert where_lost([SEND, read], []) == {}
    expired = Row(Kind.LOG, "final", topic="t", partition=0, position=8, offset=10)
    assert where_lost([SEND, expired], []) == {}
