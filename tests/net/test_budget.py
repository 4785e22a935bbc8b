"""The bound on the request bytes of all connections."""

import pytest

from chronik.net.budget import Budget


class Waiter:
    def __init__(self) -> None:
        self.woken = 0

    def unthrottle(self) -> None:
        self.woken += 1


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
