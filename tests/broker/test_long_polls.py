"""Those who wait for data cost those who produce nothing."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from chronik.broker.clock import SystemClock
from chronik.broker.long_polls import LongPolls, Turns
from chronik.model.limits import POLLS_AT_ONCE_US


class Poll:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_fm30_only_those_with_enough_bytes_are_woken() -> None:
    polls, hungry, modest = LongPolls(), Poll(), Poll()
    polls.add(1000, hungry.wake)
    polls.add(10, modest.wake)
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
    polls.add(10, one.wake)
    polls.add(20, one.wake)
    polls.add(10, other.wake)
    polls.discard(other.wake)
    polls.reached(10)
    assert (one.woken, other.woken) == (0, 0)
    polls.reached(20)
    assert (one.woken, other.woken) == (1, 0)


def test_a_new_role_wakes_everybody() -> None:
    polls, poll = LongPolls(), Poll()
    polls.add(1 << 40, poll.wake)
    polls.wake_all()
    polls.wake_all()
    assert poll.woken == 1
    assert len(polls) == 0


def test_polls_that_come_and_go_leave_nothing_behind() -> None:
    polls, stays = LongPolls(), Poll()
    polls.add(1 << 40, stays.wake)
    for _ in range(1000):
        poll = Poll()
        polls.add(1 << 40, poll.wake)
        polls.discard(poll.wake)
    assert len(polls._heap) < 50
    polls.reached(1 << 40)
    assert stays.woken == 1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 50), st.booleans())))
def test_whoever_waits_is_woken_when_its_bytes_are_there(
    steps: list[tuple[int, int, bool]],
) -> None:
    polls, written = LongPolls(), 0
    clients = [Poll() for _ in range(5)]
    wanted: dict[int, int] = {}
    for number, size, waits in steps:
        if waits:
            wanted[number] = written + size
            polls.add(written + size, clients[number].wake)
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

    class Slow(SystemClock):
        now = 0

        def monotonic_ns(self) -> int:
            self.now += 1000 * POLLS_AT_ONCE_US // 10
            return self.now

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        turns, done = Turns(loop, Slow()), 0

        def poll() -> None:
            nonlocal done
            done += 1

        for _ in range(1000):
            turns.soon(poll)
        await asyncio.sleep(0)
        assert 5 <= done <= 15
        while done < 1000:
            before = done
            await asyncio.sleep(0)
            assert before < done <= before + 15

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
        turns.soon(poll.wake)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert poll.woken == 1
        assert [type(error) for error in told] == [ZeroDivisionError]

    asyncio.run(scenario())
