"""How far away a client is: what the kernel says of real sockets."""

import socket

from tests.net.kit import FakeListener

from chronik.model import limits
from chronik.net.round_trip import round_trip_us

HOST = "127.0.0.1"
SECOND_US = 1_000_000


def test_both_ends_of_a_connection_within_this_machine_are_near() -> None:
    with (
        socket.create_server((HOST, 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
    ):
        for end in (client, accepted):
            found = round_trip_us(end)
            assert isinstance(found, int)
            assert 0 <= found < SECOND_US


def test_what_is_no_tcp_connection_says_nothing() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert round_trip_us(one) is None
    assert round_trip_us(one) is None, "closed by now"
    assert round_trip_us(None) is None


def test_a_client_that_nothing_is_known_of_gets_all_that_one_answer_may_hold() -> None:
    connection, transport = FakeListener().connect()
    assert transport.get_extra_info("socket") is None
    assert connection.peer.enough_bytes == limits.FETCH_BYTES_MAX
