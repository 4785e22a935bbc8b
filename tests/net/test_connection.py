"""Frames, the order of answers, and the brakes of one connection, without a socket."""

import asyncio
import random
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.net.kit import Calls, FakeListener, answers, feed, framed, request

from chronik.handlers.call import Call
from chronik.model import limits
from chronik.net.budget import Budget
from chronik.net.frames import FRAME_STEP_BYTES, POOLED_BYTES_MIN

FRAMES = st.lists(st.binary(min_size=1, max_size=600), min_size=1, max_size=12)


@given(FRAMES, st.data())
def test_frames_are_the_same_wherever_the_stream_is_cut(
    frames: list[bytes], data: st.DataObject
) -> None:
    stream = framed(*frames)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20).map(sorted))
    listener = FakeListener(size=256)
    connection, _ = listener.connect()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        feed(connection, stream[start:end])
    assert listener.router.frames == frames


def test_frames_are_the_same_byte_by_byte() -> None:
    frames = [b"a", b"bc" * 50, b"d"]
    listener = FakeListener()
    connection, _ = listener.connect()
    for byte in framed(*frames):
        feed(connection, bytes([byte]))
    assert listener.router.frames == frames


def test_a_frame_larger_than_its_first_buffer_arrives_whole() -> None:
    frame = bytes(range(256)) * ((FRAME_STEP_BYTES * 3) // 256)
    listener = FakeListener(size=64 * 1024)
    connection, _ = listener.connect()
    feed(connection, framed(frame, b"next"))
    assert listener.router.frames == [frame, b"next"]


def test_a_frame_owns_its_bytes() -> None:
    listener = FakeListener()
    connection, _ = listener.connect()
    feed(connection, framed(b"first"))
    feed(connection, framed(b"other"))
    assert listener.router.frames == [b"first", b"other"]


class LetsGo(Calls):
    """As a handler that has taken views of what it needs."""

    def route(self, call: Call) -> None:
        super().route(call)
        call.let_go()


def test_a_frame_that_is_let_go_is_used_again_before_its_request_is_answered() -> None:
    listener = FakeListener(LetsGo())
    connection, _ = listener.connect()
    feed(connection, framed(request(1, POOLED_BYTES_MIN)))
    assert listener.router.calls[0].answer is None
    again = listener.frame_pool.take(POOLED_BYTES_MIN)
    assert again.startswith(request(1))
    assert listener.frame_pool.take(POOLED_BYTES_MIN) is not again
    listener.router.calls[0].reply([b""])
    assert not listener.frame_pool.take(POOLED_BYTES_MIN).startswith(request(1))


def test_two_connections_share_a_buffer_without_mixing_their_bytes() -> None:
    listener = FakeListener()
    one, _ = listener.connect()
    two, _ = listener.connect()
    first, second = framed(b"from one"), framed(b"from two")
    for a, b in zip(first, second, strict=True):
        feed(one, bytes([a]))
        feed(two, bytes([b]))
    assert sorted(listener.router.frames) == [b"from one", b"from two"]


@pytest.mark.parametrize("size", [0, -1, -(2**31), limits.REQUEST_BYTES_MAX + 1, 2**31 - 1])
def test_fm17_an_impossible_length_closes_the_connection(size: int) -> None:
    listener = FakeListener()
    connection, transport = listener.connect()
    feed(connection, size.to_bytes(4, "big", signed=True) + b"GET / HTTP/1.1")
    assert transport.aborted
    assert listener.refused == [size]
    assert listener.router.frames == []


def test_fm17_a_large_length_alone_allocates_little() -> None:
    listener = FakeListener()
    connection, transport = listener.connect()
    feed(connection, limits.REQUEST_BYTES_MAX.to_bytes(4, "big") + b"x")
    assert len(connection.get_buffer(-1)) <= FRAME_STEP_BYTES
    assert not transport.aborted


def test_nothing_is_served_after_a_frame_that_ended_the_connection() -> None:
    """What follows a broken request in the same packet must not be appended."""

    class HangUpFirst(Calls):
        def route(self, call: object) -> None:
            super().route(call)  # type: ignore[arg-type]
            if len(self.calls) == 1:
                self.calls[0].hang_up()

    listener = FakeListener(HangUpFirst())
    connection, transport = listener.connect()
    feed(connection, framed(b"malformed", b"produce"))
    assert transport.aborted
    assert listener.router.frames == [b"malformed"]


@given(st.permutations(range(6)))
def test_fm06_answers_leave_in_request_order_whatever_completes_first(order: list[int]) -> None:
    listener = FakeListener()
    connection, transport = listener.connect()
    feed(connection, framed(*[request(n) for n in range(6)]))
    for n in order:
        listener.router.calls[n].reply((b"body", str(n).encode()))
    assert answers(transport.written) == [(n, f"body{n}".encode()) for n in range(6)]
    assert listener.budget.used == 0


@given(st.permutations(range(6)), st.integers(0, 6))
def test_fm06_answers_that_are_ready_together_leave_together(order: list[int], alone: int) -> None:
    listener = FakeListener()
    connection, transport = listener.connect()
    feed(connection, framed(*[request(n) for n in range(6)]))
    for n in order[:alone]:
        listener.router.calls[n].reply((b"body",))
    before = transport.sends

    def work() -> None:
        for n in order[alone:]:
            listener.router.calls[n].reply((b"body",))
        assert transport.sends == before

    listener.outbox.together(work)
    assert transport.sends == before + (alone < 6)
    assert answers(transport.written) == [(n, b"body") for n in range(6)]
    assert listener.budget.used == 0


def test_fm15_a_request_without_answer_leaves_no_gap() -> None:
    listener = FakeListener()
    connection, transport = listener.connect()
    feed(connection, framed(request(0), request(1), request(2)))
    zero, one, two = listener.router.calls
    two.reply((b"2",))
    one.no_reply()
    assert transport.written == b""
    zero.reply((b"0",))
    assert answers(transport.written) == [(0, b"0"), (2, b"2")]


def test_a_client_that_left_costs_nothing_afterwards() -> None:
    listener = FakeListener()
    connection, transport = listener.connect()
    feed(connection, framed(request(0), request(1)) + b"\0\0\1\0half a frame")
    first, second = listener.router.calls
    second.reply((b"1",))
    connection.connection_lost(None)
    assert listener.budget.used == 0
    assert listener.connections == []
    first.reply((b"0",))
    assert listener.budget.used == 0
    assert transport.written == b""


def test_fm62_too_many_requests_in_flight_stop_the_reading_until_some_are_answered() -> None:
    listener = FakeListener()
    connection, transport = listener.connect()
    count = limits.IN_FLIGHT_REQUESTS_PER_CONNECTION_MAX + 1
    feed(connection, framed(*[request(n) for n in range(count)]))
    assert not transport.is_reading()
    listener.router.calls[0].reply((b"",))
    assert transport.is_reading()
    assert len(listener.router.calls) == count, "nothing was dropped"


def test_fm62_too_many_bytes_in_flight_stop_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IN_FLIGHT_BYTES_PER_CONNECTION_MAX", 1000)
    listener = FakeListener()
    connection, transport = listener.connect()
    feed(connection, framed(request(0, 600)))
    assert transport.is_reading()
    feed(connection, framed(request(1, 600)))
    assert not transport.is_reading()
    listener.router.calls[0].reply((b"",))
    assert transport.is_reading()


def test_a_client_that_does_not_take_its_answers_is_not_read() -> None:
    listener = FakeListener()
    connection, transport = listener.connect()
    connection.pause_writing()
    assert not transport.is_reading()
    connection.resume_writing()
    assert transport.is_reading()


def test_fm62_the_nodes_budget_stops_every_connection_that_sends() -> None:
    listener = FakeListener(budget=Budget(1000))
    one, first = listener.connect()
    two, second = listener.connect()
    feed(one, framed(request(0, 1001)))
    feed(two, framed(request(1)))
    assert not first.is_reading()
    assert not second.is_reading()
    listener.router.calls[0].reply((b"",))
    assert first.is_reading()
    assert second.is_reading()


def test_fm62_a_connection_held_by_its_own_limit_is_not_forgotten_when_the_budget_is_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Held by its own limit first, then by the node's: the node's release must wake it."""
    monkeypatch.setattr(limits, "IN_FLIGHT_BYTES_PER_CONNECTION_MAX", 100)
    listener = FakeListener(budget=Budget(1000))
    small, small_transport = listener.connect()
    large, _ = listener.connect()
    feed(small, framed(request(0, 101)))
    feed(large, framed(request(1, 1500)))
    of_small, of_large = listener.router.calls
    of_small.reply((b"",))
    assert not small_transport.is_reading(), "the node's budget is used up"
    of_large.reply((b"",))
    assert small_transport.is_reading()


def test_fm62_a_slow_reader_is_not_forgotten_when_the_budget_is_used_up() -> None:
    listener = FakeListener(budget=Budget(1000))
    slow, transport = listener.connect()
    other, _ = listener.connect()
    slow.pause_writing()
    feed(other, framed(request(0, 1500)))
    slow.resume_writing()
    assert not transport.is_reading()
    listener.router.calls[0].reply((b"",))
    assert transport.is_reading()


def test_a_connection_that_leaves_gives_its_bytes_back_to_those_who_wait() -> None:
    listener = FakeListener(budget=Budget(1000))
    one, _ = listener.connect()
    two, transport = listener.connect()
    feed(one, framed(request(0, 2000)))
    feed(two, framed(request(1)))
    assert not transport.is_reading()
    one.connection_lost(None)
    assert transport.is_reading()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(8, 700)), max_size=40), st.randoms())
def test_fm62_whatever_comes_and_goes_nobody_waits_for_ever(
    arrivals: list[tuple[int, int]], rng: object
) -> None:
    """Any traffic over three connections; once all is answered everybody is read again."""
    listener = FakeListener(budget=Budget(1500))
    clients = [listener.connect() for _ in range(3)]
    sent = 0
    for number, size in arrivals:
        connection, transport = clients[number]
        if transport.is_reading():
            feed(connection, framed(request(sent, size)))
            sent += 1
        waiting = [call for call in listener.router.calls if call.answer is None]
        if waiting and rng.random() < 0.4:  # type: ignore[attr-defined]
            rng.choice(waiting).reply((b"",))  # type: ignore[attr-defined]
    for call in listener.router.calls:
        if call.answer is None:
            call.reply((b"",))
    assert all(transport.is_reading() for _, transport in clients)
    assert listener.budget.used == 0
    assert len(listener.router.calls) == sent


def test_fm17_a_thousand_clients_that_send_a_huge_frame_byte_by_byte_hold_little() -> None:
    """The node has memory for their bytes, not for their announcements, and serves the others."""
    budget = Budget(limits.IN_FLIGHT_BYTES_MAX // 4)
    listener = FakeListener(budget=budget)
    slow = [listener.connect() for _ in range(1000)]
    for connection, _ in slow:
        feed(connection, limits.REQUEST_BYTES_MAX.to_bytes(4, "big"))
    for _ in range(20):
        for connection, _ in slow:
            feed(connection, b"x")
    assert all(transport.is_reading() for _, transport in slow)
    held = sum(connection.held for connection, _ in slow)
    assert budget.used == budget.arriving == held < budget.limit // 2
    other, transport = listener.connect()
    feed(other, framed(request(0)))
    assert transport.is_reading()
    assert len(listener.router.calls) == 1
    for connection, _ in slow:
        connection.connection_lost(None)
    assert budget.arriving == 0


def test_fm62_a_frame_that_never_ends_is_dropped_where_others_wait_for_its_memory() -> None:
    async def scenario() -> None:
        listener = FakeListener(budget=Budget(100_000, turn_s=0.01))
        stuck, first = listener.connect()
        honest, second = listener.connect()
        feed(stuck, (90_000).to_bytes(4, "big") + b"x" * 5000)
        feed(honest, (60_000).to_bytes(4, "big") + b"y" * 5000)
        assert not second.is_reading(), "the first has the turn"
        while not first.aborted:  # noqa: ASYNC110 - a timer of the budget's own
            await asyncio.sleep(0.001)
        stuck.connection_lost(None)
        assert listener.dropped == [90_000]
        assert second.is_reading()
        feed(honest, b"y" * 55_000)
        assert listener.router.frames == [b"y" * 60_000]

    asyncio.run(scenario())


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 120_000), min_size=1, max_size=3), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_fm62_frames_in_pieces_all_become_whole_within_the_budget(
    wanted: list[list[int]], rng: random.Random
) -> None:
    """Whatever the sizes and the order: somebody can always go on, and memory stays bounded."""

    async def scenario() -> None:
        budget = Budget(160_000, turn_s=1000)
        listener = FakeListener(budget=budget)
        streams = [bytearray(framed(*map(bytes, sizes))) for sizes in wanted]
        clients = [(*listener.connect(), stream) for stream in streams]
        while any(streams):
            able = [one for one in clients if one[2] and one[1].is_reading()]
            assert able, "everybody waits"
            connection, _, unsent = rng.choice(able)
            size = min(len(unsent), rng.choice((3, 1000, 20_000)), len(connection.get_buffer(-1)))
            feed(connection, bytes(unsent[:size]))
            del unsent[:size]
            assert budget.arriving <= budget.limit // 2 + 2 * 120_000 + len(clients) * 16_384
            for call in listener.router.calls:
                if call.answer is None and rng.random() < 0.7:
                    call.reply((b"",))
            if not any(one[2] and one[1].is_reading() for one in clients):
                for call in listener.router.calls:
                    if call.answer is None:
                        call.reply((b"",))
        assert sorted(map(len, listener.router.frames)) == sorted(chain(*wanted))
        assert budget.arriving == 0

    asyncio.run(scenario())


def test_a_client_too_many_is_turned_away() -> None:
    listener = FakeListener()
    listener.connections_max = 1
    _, first = listener.connect()
    _, second = listener.connect()
    assert not first.aborted
    assert second.aborted


def test_fm59_a_connection_that_stops_reading_answers_what_it_has() -> None:
    listener = FakeListener()
    connection, transport = listener.connect()
    feed(connection, framed(request(0), request(1)))
    connection.stop_reading()
    assert not transport.is_reading()
    for call in listener.router.calls:
        call.reply((b"",))
    assert [number for number, _ in answers(transport.written)] == [0, 1]
    assert not transport.is_reading(), "and takes no more"
