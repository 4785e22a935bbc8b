"""Time of a simulated world: a queue of events, and clocks that run fast or slow."""

import heapq
from collections.abc import Callable
from random import Random

Action = Callable[[], None]


class Clock:
    """Events in the order of their time; equal times in the order they were planned."""

    __slots__ = ("_planned", "_queue", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self._queue: list[tuple[int, int, Action]] = []
        self._planned = 0

    def after(self, delay_us: int, action: Action) -> None:
        """Plans `action` for `delay_us` from now."""
        self._planned += 1
        heapq.heappush(self._queue, (self.now_us + delay_us, self._planned, action))

    def step(self) -> bool:
        """Lets the next event happen; False if there is none."""
        if not self._queue:
            return False
        self.now_us, _, action = heapq.heappop(self._queue)
        action()
        return True


class DriftingTimer:
    """A node's idea of how long a tick lasts: up to `drift_percent` off, and with jitter."""

    __slots__ = ("_period_us", "_random")

    def __init__(self, random: Random, period_us: int, drift_percent: int) -> None:
        self._random = random
        off = random.randint(-drift_percent, drift_percent)
        self._period_us = period_us * (100 + off) // 100

    def next_us(self) -> int:
        """Until the next tick, with the jitter of a busy machine."""
        return self._period_us + self._random.randrange(self._period_us // 10 + 1)
