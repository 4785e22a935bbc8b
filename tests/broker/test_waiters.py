"""Those who wait for an offset: released in order, and at no cost for those further away."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.broker.waiters import Waiters
from chronik.model.errors import ErrorCode

OK, FAILED = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR


class Offset(int):
    """Counts how often it is compared."""

    compared = 0

    def __le__(self, other: int) -> bool:
        Offset.compared += 1
        return int(self) <= int(other)

    def __gt__(self, other: int) -> bool:
        Offset.compared += 1
        return int(self) > int(other)

    def __lt__(self, other: int) -> bool:
        Offset.compared += 1
        return int(self) < int(other)


@pytest.mark.parametrize("waiting", [10, 1_000, 100_000])
def test_fm30_an_ack_costs_the_same_however_many_wait(waiting: int) -> None:
    waiters = Waiters()
    released: list[ErrorCode] = []
    for offset in range(waiting):
        waiters.add(Offset(offset), released.append)
    Offset.compared = 0
    waiters.reached(0)
    assert released == [OK]
    assert Offset.compared <= 2
    waiters.add(Offset(waiting), released.append)
    assert Offset.compared <= 4


def test_the_refused_are_told_in_their_order_and_the_others_wait_on() -> None:
    waiters = Waiters()
    told: list[tuple[int, ErrorCode]] = []
    for offset in range(6):
        waiters.add(offset, lambda code, offset=offset: told.append((offset, code)))  # type: ignore[misc]
    waiters.failed_beyond(2, FAILED)
    assert told == [(3, FAILED), (4, FAILED), (5, FAILED)]
    waiters.reached(2)
    assert [offset for offset, code in told if code is OK] == [0, 1, 2]
    assert len(waiters) == 0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 30)),
            st.tuples(st.just("reached"), st.integers(0, 30)),
            st.tuples(st.just("failed"), st.integers(0, 30)),
        ),
        max_size=60,
    )
)
def test_everybody_is_told_exactly_once_and_the_truth(steps: list[tuple[str, int]]) -> None:
    waiters = Waiters()
    told: dict[int, ErrorCode] = {}
    waiting: dict[int, int] = {}

    def tell(number: int, code: ErrorCode) -> None:
        assert number not in told
        told[number] = code

    for number, (what, offset) in enumerate(steps):
        if what == "add":
            waiters.add(offset, partial(tell, number))
            waiting[number] = offset
            continue
        code = OK if what == "reached" else FAILED
        due = {n for n, o in waiting.items() if (o <= offset) == (code is OK)}
        getattr(waiters, "reached" if code is OK else "failed_beyond")(
            *((offset,) if code is OK else (offset, code))
        )
        assert {n for n in waiting if n in told} == due
        assert all(told[n] is code for n in due)
        waiting = {n: o for n, o in waiting.items() if n not in due}
    assert len(waiters) == len(waiting)
