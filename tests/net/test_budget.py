"""The bound on the request bytes of all connections."""

import asyncio

import pytest

from chronik.net.budget import Budget


class Waiter:
    def __init__(self) -> None:
        self.held = 0
        self.woken = 0
        self.dropped = False

    def unthrottle(self) -> None:
        self.woken += 1

    def drop_frame(self) -> None:
        self.dropped = True


def test_exactly_the_limit_is_not_too_much() -> None:
    budget = Budget(10)
    budget.take(10)
    assert not budget.exceeded
    budget.take(1)
    assert budget.exceeded


def test_those_who_wait_are_woken_once_when_there_is_room() -> None:
    budget, waiter = Budget(10), Waiter()
    budget.take(30)
    budget.wait(waiter)
    budget.wait(waiter)
    budget.release(10)
    assert waiter.woken == 0
    budget.release(15)
    budget.release(5)
    assert waiter.woken == 1


def test_nobody_waits_while_there_is_room() -> None:
    budget, waiter = Budget(10), Waiter()
    budget.wait(waiter)
    budget.take(20)
    budget.release(20)
    assert waiter.woken == 0


def test_the_gone_are_not_woken() -> None:
    budget, waiter = Budget(10), Waiter()
    budget.take(20)
    budget.wait(waiter)
    budget.forget(waiter)
    budget.release(20)
    assert waiter.woken == 0


def test_one_who_must_wait_again_is_woken_again() -> None:
    budget = Budget(10)

    class Greedy(Waiter):
        def unthrottle(self) -> None:
            super().unthrottle()
            if self.woken == 1:
                budget.take(20)
                budget.wait(self)

    greedy = Greedy()
    budget.take(20)
    budget.wait(greedy)
    budget.release(20)
    budget.release(20)
    assert greedy.woken == 2


def test_more_than_was_taken_cannot_be_released() -> None:
    with pytest.raises(AssertionError):
        Budget(10).release(1)


def test_frames_under_way_count_and_leave_room_for_whole_requests() -> None:
    budget, client = Budget(100), Waiter()
    budget.hold(client, 30)
    assert (budget.used, budget.arriving) == (30, 30)
    assert not budget.roomy
    budget.hold(client, 51)
    assert budget.crowded
    assert not budget.exceeded, "whole requests are still taken"
    budget.hold(client, 0)
    assert (budget.used, budget.arriving) == (0, 0)
    assert budget.roomy


def turn(budget: Budget) -> object:
    return budget.turn


def test_fm62_frames_under_way_read_on_one_at_a_time_in_order() -> None:
    async def scenario() -> None:
        budget = Budget(100)
        first, second, third = clients = [Waiter() for _ in range(3)]
        for client in clients:
            budget.hold(client, 30)
        for client in clients:
            budget.wait(client)
        assert turn(budget) is first
        assert [client.woken for client in clients] == [1, 0, 0]
        budget.hold(first, 35)
        budget.hold(first, 0)
        assert turn(budget) is second
        assert [client.woken for client in clients] == [1, 1, 0]
        budget.hold(second, 0)
        assert turn(budget) is None
        assert third.woken == 1, "there is room again"

    asyncio.run(scenario())


def test_fm62_a_turn_goes_on_to_the_next_where_a_client_sends_nothing_or_leaves() -> None:
    async def scenario() -> None:
        budget = Budget(200, turn_s=0.01)
        silent, leaver, last = clients = [Waiter() for _ in range(3)]
        for client in clients:
            budget.hold(client, 30)
        budget.hold(Waiter(), 80)
        for client in clients:
            budget.wait(client)
        while not silent.dropped:  # noqa: ASYNC110 - a timer of the budget's own
            await asyncio.sleep(0.001)
        assert turn(budget) is leaver
        budget.hold(leaver, 0)
        budget.forget(leaver)
        assert turn(budget) is last
        budget.hold(silent, 0)
        budget.hold(last, 0)
        assert turn(budget) is None
        assert not budget.crowded
        assert not leaver.dropped
        assert not last.dropped

    asyncio.run(scenario())


def test_nobody_is_dropped_where_nobody_waits_for_the_memory() -> None:
    async def scenario() -> None:
        budget = Budget(100, turn_s=0.01)
        slow, other = Waiter(), Waiter()
        budget.hold(slow, 60)
        budget.hold(other, 40)
        budget.wait(slow)
        budget.hold(other, 0)
        budget.hold(slow, 50)
        await asyncio.sleep(0.03)
        assert not slow.dropped
        assert turn(budget) is None

    asyncio.run(scenario())
