"""Those who wait for data cost those who produce nothing."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from chronik.broker.clock import SystemClock
from chronik.broker.long_polls import LongPolls, Polls, look_at_once
from chronik.broker.turns import Turns
from chronik.model.limits import POLLS_AT_ONCE_US


class Poll:
    """Satisfied by whatever it finds."""

    def __init__(self, polls: LongPolls | None = None) -> None:
        self.woken = 0
        self._polls = polls

    def look_again(self) -> None:
        self.woken += 1
        if self._polls is not None:
            self._polls.discard(self)


class Slow(SystemClock):
    """Ten looks at it are as long as a turn."""

    now = 0

    def monotonic_ns(self) -> int:
        self.now += 1000 * POLLS_AT_ONCE_US // 10
        return self.now


class Still(SystemClock):
    """Time passes when it is told to."""

    now = 0

    def monotonic_ns(self) -> int:
        return self.now


def test_fm30_only_those_with_enough_bytes_are_woken() -> None:
    polls = LongPolls()
    hungry, modest = Poll(polls), Poll(polls)
    polls.add(1000, hungry)
    polls.add(10, modest)
    polls.reached(9)
    assert (hungry.woken, modest.woken) == (0, 0)
    polls.reached(10)
    polls.reached(999)
    assert (hungry.woken, modest.woken) == (0, 1), "once"
    polls.reached(1000)
    assert (hungry.woken, modest.woken) == (1, 1)
    assert len(polls) == 0


def test_a_poll_that_is_added_anew_or_discarded_waits_for_nothing_else() -> None:
    polls, one, other = LongPolls(), Poll(), Poll()
    polls.add(10, one)
    polls.add(20, one)
    polls.add(10, other)
    polls.discard(other)
    polls.reached(10)
    assert (one.woken, other.woken) == (0, 0)
    polls.reached(20)
    assert (one.woken, other.woken) == (1, 0)


def test_a_new_role_wakes_everybody() -> None:
    polls = LongPolls()
    poll = Poll(polls)
    polls.add(1 << 40, poll)
    polls.wake_all()
    polls.wake_all()
    assert poll.woken == 1
    assert len(polls) == 0


def test_polls_that_come_and_go_leave_nothing_behind() -> None:
    polls, stays = LongPolls(), Poll()
    polls.add(1 << 40, stays)
    for number in range(1000):
        poll = Poll()
        polls.add((1 << 40) + number, poll)
        polls.discard(poll)
    assert len(polls._heap) < 50
    polls.reached(1 << 40)
    assert stays.woken == 1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 50), st.booleans())))
def test_whoever_waits_is_woken_when_its_bytes_are_there(
    steps: list[tuple[int, int, bool]],
) -> None:
    polls, written = LongPolls(), 0
    clients = [Poll(polls) for _ in range(5)]
    wanted: dict[int, int] = {}
    for number, size, waits in steps:
        if waits:
            wanted[number] = written + size
            polls.add(written + size, clients[number])
        else:
            written += size
            before = [client.woken for client in clients]
            polls.reached(written)
            woken = {n for n, client in enumerate(clients) if client.woken > before[n]}
            due = {n for n, at in wanted.items() if at <= written}
            assert woken == due
            for n in due:
                del wanted[n]
    assert len(polls) == len(wanted)


def test_fm30_what_came_in_meanwhile_does_not_wait_for_all_polls() -> None:
    """A thousand slow answers; something else has its turn long before they are done."""

    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop(), Slow())
        polls = LongPolls(turns.look)
        clients = [Poll(polls) for _ in range(1000)]
        for client in clients:
            polls.add(10, client)
        polls.reached(10)
        assert len(polls) == 1000, "whoever wrote the bytes answers nobody"
        await asyncio.sleep(0)
        assert 985 <= len(polls) <= 995
        while polls:
            before = len(polls)
            await asyncio.sleep(0)
            assert before - 15 <= len(polls) < before
        assert all(client.woken == 1 for client in clients)

    asyncio.run(scenario())


def test_a_poll_that_leaves_before_its_turn_is_not_looked_at() -> None:
    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop(), SystemClock())
        polls = LongPolls(turns.look)
        leaves, stays = Poll(polls), Poll(polls)
        polls.add(10, leaves)
        polls.add(10, stays)
        polls.reached(10)
        polls.discard(leaves)
        await asyncio.sleep(0)
        assert (leaves.woken, stays.woken) == (0, 1)

    asyncio.run(scenario())


def test_a_poll_that_still_has_too_little_waits_for_the_next_bytes() -> None:
    """It may wait for bytes that are written but not committed: no reason to look all the time."""

    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop(), SystemClock())
        polls = LongPolls(turns.look)

        class Hungry(Poll):
            def look_again(self) -> None:
                self.woken += 1
                polls.add(10, self)

        hungry = Hungry()
        polls.add(10, hungry)
        for expected in (1, 2):
            polls.reached(10)
            for _ in range(5):
                await asyncio.sleep(0)
            assert hungry.woken == expected

    asyncio.run(scenario())


def test_the_polls_of_one_partition_do_not_hold_up_those_of_another() -> None:
    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop(), Slow())
        crowded, quiet = LongPolls(turns.look), LongPolls(turns.look)
        for _ in range(1000):
            crowded.add(10, Poll(crowded))
        alone = Poll(quiet)
        quiet.add(10, alone)
        crowded.reached(10)
        quiet.reached(10)
        await asyncio.sleep(0)
        assert alone.woken == 1

    asyncio.run(scenario())


def test_fm30_a_burst_of_fetches_is_put_off_and_a_lone_one_is_not() -> None:
    async def scenario() -> None:
        clock, done = Still(), 0
        turns = Turns(asyncio.get_running_loop(), clock)

        def fetch() -> None:
            nonlocal done
            done += 1
            clock.now += 1000 * POLLS_AT_ONCE_US // 10

        for number in range(30):
            turns.soon_or_now(fetch)
            assert done == number + 1
            clock.now += 1000 * POLLS_AT_ONCE_US // 10
        for _ in range(1000):
            turns.soon_or_now(fetch)
        assert done <= 30 + 10, "a turn's worth of them, then whatever else came in"
        while done < 1030:
            before = done
            await asyncio.sleep(0)
            assert before < done <= before + 10

    asyncio.run(scenario())


def test_fm30_what_waits_for_the_disk_goes_first_but_not_for_ever() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        order: list[str] = []
        turns = Turns(loop, SystemClock(), lambda: True)
        turns.soon(lambda: order.append("fetch"))
        loop.call_soon(lambda: order.append("commit"))
        await asyncio.sleep(0)
        loop.call_soon(lambda: order.append("next commit"))
        await asyncio.sleep(0)
        assert order == ["commit", "fetch", "next commit"]

    asyncio.run(scenario())


def test_a_poll_that_fails_takes_nobody_with_it() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        told = []
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        turns, poll = Turns(loop, SystemClock()), Poll()

        def fail() -> None:
            raise ZeroDivisionError

        turns.soon(fail)
        turns.soon(poll.look_again)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert poll.woken == 1
        assert [type(error) for error in told] == [ZeroDivisionError]

    asyncio.run(scenario())


def test_whoever_takes_any_byte_is_woken_by_the_first_and_only_once() -> None:
    polls = LongPolls()
    one, other, hungry = Poll(polls), Poll(polls), Poll(polls)
    polls.add_for_any(one)
    polls.add_for_any(other)
    polls.add(10, hungry)
    polls.discard(other)
    polls.reached(1)
    polls.reached(2)
    assert (one.woken, other.woken, hungry.woken) == (1, 0, 0)
    polls.add_for_any(one)
    polls.wake_all()
    assert (one.woken, hungry.woken) == (2, 1)
    assert len(polls) == 0


def test_a_poll_waits_for_any_byte_or_for_many_but_not_for_both() -> None:
    polls, one, other = LongPolls(), Poll(), Poll()
    polls.add(10, one)
    polls.add_for_any(one)
    polls.add_for_any(other)
    polls.add(10, other)
    polls.reached(5)
    assert (one.woken, other.woken) == (1, 0)
    polls.reached(10)
    assert (one.woken, other.woken) == (1, 1)


def test_whoever_is_discarded_between_waking_and_its_turn_is_not_asked() -> None:
    woken: list[Polls] = []
    polls, one, other = LongPolls(woken.append), Poll(), Poll()
    polls.add_for_any(one)
    polls.add_for_any(other)
    polls.reached(1)
    polls.discard(one)
    polls.add_for_any(one)  # anew: for what comes next
    look_at_once(woken.pop())
    assert (one.woken, other.woken) == (0, 1)
    polls.reached(2)
    look_at_once(woken.pop())
    assert (one.woken, other.woken) == (1, 1)
