"""The time from a leader's watermark to its followers', from given events."""

import pytest

from chronik.audit.watermark_spread import Spread, percentile, spread
from chronik.trace.events import EventKind, TraceEvent

MS = 1_000_000


def event(
    kind: EventKind, node: int, at_ms: float, watermark: int = 0, epoch: int = 1
) -> TraceEvent:
    at_ns = int(at_ms * MS)
    peer = watermark if kind == EventKind.ELECTION else None
    return TraceEvent(at_ns, at_ns, node, kind, "t", 0, epoch, high_watermark=watermark, peer=peer)


def moved(node: int, at_ms: float, watermark: int, epoch: int = 1) -> TraceEvent:
    return event(EventKind.WATERMARK, node, at_ms, watermark, epoch)


def elected(leader: int, epoch: int = 1) -> list[TraceEvent]:
    return [event(EventKind.ELECTION, node, 0, leader, epoch) for node in (1, 2, 3)]


def test_each_move_is_measured_on_each_follower() -> None:
    found = spread(
        [
            *elected(1),
            moved(1, 10, 5),
            moved(2, 12, 5),
            moved(3, 11, 5),
            moved(1, 20, 9),
            moved(2, 21, 9),
            moved(3, 24, 9),
        ]
    )
    assert found == Spread(2, {2: [1.0, 2.0], 3: [1.0, 4.0]}, {})
    assert [row["follower"] for row in found.rows()] == ["node 2", "node 3", "all"]


def test_a_skipped_move_is_known_with_the_next_one() -> None:
    found = spread(
        [*elected(1), moved(1, 10, 5), moved(1, 11, 6), moved(1, 12, 7), moved(2, 13, 6)]
    )
    assert found.delays_ms == {2: [2.0, 3.0]}
    assert found.unknown == {2: 1, 3: 3}


def test_a_new_leaders_moves_count_from_its_epoch_on() -> None:
    found = spread(
        [
            *elected(1),
            moved(1, 10, 5),
            moved(2, 12, 5),
            moved(3, 11, 5),
            *elected(2, 2),
            moved(2, 30, 8, 2),
            moved(3, 31, 8, 2),
            moved(1, 35, 8, 2),
        ]
    )
    assert found.moves == 2
    assert found.delays_ms == {1: [5.0], 2: [2.0], 3: [1.0, 1.0]}


def test_without_an_election_in_the_traces_whoever_appends_leads() -> None:
    appended = [event(EventKind.APPENDED, 3, 1), event(EventKind.FOLLOWER_APPENDED, 1, 2)]
    found = spread([*appended, moved(3, 4, 1), moved(1, 5, 1)])
    assert (found.moves, found.delays_ms) == (1, {1: [1.0]})


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)])
def test_percentiles(share: float, value: float) -> None:
    assert percentile([float(n) for n in range(1, 101)], share) == value
    assert percentile([], share) == 0.0
