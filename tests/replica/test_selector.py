"""KIP-392: which replica serves a consumer."""

import pytest

from chronik.replica.selector import Readable, preferred_replica

LEADER = Readable(1, "a", 0, 100, 0)
NEAR = Readable(2, "b", 0, 100, 5)
LAGGING = Readable(3, "b", 0, 40, 5)
CUT = Readable(4, "b", 60, 100, 9)


@pytest.mark.parametrize(
    ("rack", "offset", "expected"),
    [
        ("a", 50, 1),  # the leader is near enough
        ("b", 50, 2),  # of those that have the offset the one that has most
        ("b", 70, 4),  # ... and caught up last
        ("b", 101, 1),  # nobody there has it
        ("c", 50, 1),  # nobody is there
    ],
)
def test_the_replica_in_the_clients_rack_with_the_most(
    rack: str, offset: int, expected: int
) -> None:
    assert preferred_replica(rack, 1, [LEADER, NEAR, LAGGING, CUT], offset) == expected


def test_nodes_without_a_rack_are_near_to_nobody() -> None:
    assert preferred_replica("b", 1, [LEADER._replace(rack=None), LAGGING], 99) == 1
