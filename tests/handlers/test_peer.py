"""How much an answer to a client holds, by how far away it is."""

import pytest

from chronik.handlers.call import Peer
from chronik.model import limits


@pytest.mark.parametrize(
    ("round_trip_us", "enough_bytes"),
    [
        (0, 512 * 1024),
        (60, 512 * 1024),
        (128, 512 * 1024),
        (129, 129 * 4096),
        (5_000, 5_000 * 4096),
        (50_000, 55 * 1024 * 1024),
        (2**32 - 1, 55 * 1024 * 1024),  # Linux, where it has not measured any
    ],
)
def test_the_longer_the_way_the_more_within_the_bound(
    round_trip_us: int, enough_bytes: int
) -> None:
    peer = Peer("10.0.0.1", 5, "10.0.0.2", 9092)
    peer.reached_in(round_trip_us)
    assert peer.enough_bytes == enough_bytes


def test_a_peer_of_unknown_distance_gets_as_much_as_the_farthest() -> None:
    assert Peer("10.0.0.1", 5, "10.0.0.2", 9092).enough_bytes == limits.FETCH_BYTES_MAX
