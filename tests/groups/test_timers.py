"""Timers: never late, never twice, and cheap to move."""

from hypothesis import given
from hypothesis import strategies as st

from chronik.groups.timers import Timer, TimerKind, Timers


def new_timer() -> Timer:
    return Timer(TimerKind.SESSION)


def test_a_timer_fires_once_at_its_deadline() -> None:
    timers, timer = Timers(), new_timer()
    timers.set(timer, 10)
    assert timers.next_deadline() == 10
    assert timers.pop_due(9) is None
    assert timers.pop_due(10) is timer
    assert timers.pop_due(10) is None
    assert timers.next_deadline() is None


def test_a_moved_timer_fires_at_its_last_deadline_only() -> None:
    timers, timer = Timers(), new_timer()
    for deadline_ms in (50, 20, 80, 60):
        timers.set(timer, deadline_ms)
    assert timers.pop_due(59) is None
    assert timers.pop_due(60) is timer
    assert timers.pop_due(1000) is None


def test_a_cancelled_timer_does_not_fire() -> None:
    timers, timer = Timers(), new_timer()
    timers.set(timer, 10)
    timers.cancel(timer)
    assert timers.next_deadline() is None
    assert timers.pop_due(1000) is None


def test_churn_does_not_fill_the_heap() -> None:
    timers = Timers()
    for number in range(10_000):
        timer = new_timer()
        timers.set(timer, 1_000_000 - number)
        timers.cancel(timer)
    assert len(timers._heap) < 1_000


actions = st.lists(
    st.tuples(st.sampled_from(("set", "cancel", "pass")), st.integers(0, 4), st.integers(0, 20)),
    max_size=60,
)


@given(actions)
def test_timers_agree_with_a_plain_dictionary(steps: list[tuple[str, int, int]]) -> None:
    timers, own = Timers(), [new_timer() for _ in range(5)]
    model: dict[int, int] = {}
    now_ms = 0
    for action, which, amount in steps:
        if action == "set":
            timers.set(own[which], now_ms + 1 + amount)
            model[which] = now_ms + 1 + amount
        elif action == "cancel":
            timers.cancel(own[which])
            model.pop(which, None)
        else:
            now_ms += amount
            fired = set()
            while (timer := timers.pop_due(now_ms)) is not None:
                fired.add(own.index(timer))
            assert fired == {key for key, at_ms in model.items() if at_ms <= now_ms}
            model = {key: at_ms for key, at_ms in model.items() if at_ms > now_ms}
        next_ms = timers.next_deadline()
        assert (next_ms is None) == (not model)
        assert next_ms is None or next_ms <= min(model.values())
