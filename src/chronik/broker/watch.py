"""A timer on the event loop: notices when the loop was held up, samples rates once a second."""

import asyncio

from chronik.broker.clock import Clock
from chronik.broker.metrics import Metrics
from chronik.broker.status import History

INTERVAL_S = 0.02
"""Short against the shortest stall that counts; 50 wake-ups a second cost nothing measurable."""


class LoopWatch:
    """Runs from `start` to `stop`; no task, one timer handle."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, metrics: Metrics) -> None:
        self.history = History()
        self._loop = loop
        self._clock = clock
        self._metrics = metrics
        self._handle: asyncio.TimerHandle | None = None
        self._due_ns = 0
        self._sample_ns = 0

    def start(self) -> None:
        """Begins to watch."""
        self._schedule(self._clock.monotonic_ns())

    def stop(self) -> None:
        """Ends at once; nothing is pending afterwards."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _schedule(self, now_ns: int) -> None:
        self._due_ns = now_ns + int(INTERVAL_S * 1e9)
        self._handle = self._loop.call_later(INTERVAL_S, self._tick)

    def _tick(self) -> None:
        now_ns = self._clock.monotonic_ns()
        self._metrics.stalls.observe_us(max(0, now_ns - self._due_ns) // 1_000)
        if now_ns >= self._sample_ns:
            self._sample_ns = now_ns + 1_000_000_000
            self.history.add(now_ns, self._metrics.totals())
        self._schedule(now_ns)
