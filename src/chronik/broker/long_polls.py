"""Consumers' long polls on one partition, and their turns on the event loop.

A produce must not pay for those who wait. A poll that needs many bytes is not looked at before so
many were written; and polls that have what they need take turns, so that what came in meanwhile,
and with it every acknowledgement, waits for a few of them at most.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from chronik.broker.clock import Clock
from chronik.model.limits import POLLS_AT_ONCE_US

Wake = Callable[[], None]


class LongPolls:
    """Those who wait for data, by the number of bytes that must have been written for them."""

    __slots__ = ("_heap", "_number", "_waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Wake]] = []
        """Also entries that were discarded or added anew; `_waiting` has the number that counts."""
        self._waiting: dict[Wake, int] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, at_bytes: int, wake: Wake) -> None:
        """Has the poll woken, once, when so much was written; an earlier wish of it is void."""
        self._number += 1
        self._waiting[wake] = self._number
        heappush(self._heap, (at_bytes, self._number, wake))
        if len(self._heap) > 2 * len(self._waiting) + 16:
            self._heap = [one for one in self._heap if self._waiting.get(one[2]) == one[1]]
            heapify(self._heap)

    def discard(self, wake: Wake) -> None:
        """The poll waits no longer."""
        self._waiting.pop(wake, None)

    def reached(self, written_bytes: int) -> None:
        """Wakes those for whom there may be enough now; the others cost nothing."""
        heap, waiting = self._heap, self._waiting
        while heap and heap[0][0] <= written_bytes:
            _, number, wake = heappop(heap)
            if waiting.get(wake) == number:
                del waiting[wake]
                wake()

    def wake_all(self) -> None:
        """Something else than data: a role, an epoch, the log's start."""
        waiting, self._waiting, self._heap = self._waiting, {}, []
        for wake in waiting:
            wake()


class Turns:
    """Work that may wait for what came in meanwhile: a little of it per turn of the loop."""

    __slots__ = ("_clock", "_loop", "_queue", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._queue: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def soon(self, work: Callable[[], None]) -> None:
        """Has it done, first come, first served."""
        self._queue.append(work)
        self._schedule()

    def _schedule(self) -> None:
        if self._queue and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        until_ns = self._clock.monotonic_ns() + POLLS_AT_ONCE_US * 1000
        try:
            while self._queue:
                self._queue.popleft()()
                if self._clock.monotonic_ns() >= until_ns:
                    break
        finally:
            self._schedule()  # also after an error, which is one poll's and not the others'
