"""Consumers' long polls on one partition, and their turns on the event loop.

A produce must not pay for those who wait. A poll that needs many bytes is not looked at before so
many were written; those that have what they need are woken together, in one step; and they take
turns, as further fetches do, so that what came in meanwhile, and with it every acknowledgement,
waits for a few of them at most.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Protocol

from chronik.broker.clock import Clock
from chronik.model.limits import POLLS_AT_ONCE_US


class Poll(Protocol):
    """A fetch that waits."""

    def look_again(self) -> None:
        """There may be enough now: is answered and discarded, or added anew to wait for more."""


class Polls(OrderedDict[Poll, None]):
    """Those who wait for the same byte, first come first; and, woken, for their turn."""

    def __init__(self, at_bytes: int) -> None:
        super().__init__()
        self.at_bytes = at_bytes


Woken = Callable[[Polls], None]
"""Has all of them look again; who is discarded before it is their turn does not."""


def look_at_once(polls: Polls) -> None:
    """Without turns."""
    while polls:
        polls.popitem(last=False)[0].look_again()


class LongPolls:
    """Those who wait for data, by the number of bytes that must have been written for them."""

    __slots__ = ("_at_bytes", "_heap", "_places", "_woken")

    def __init__(self, woken: Woken = look_at_once) -> None:
        self._woken = woken
        self._at_bytes: dict[int, Polls] = {}
        self._heap: list[int] = []
        """The keys of `_at_bytes`, and some that were."""
        self._places: dict[Poll, Polls] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, at_bytes: int, poll: Poll) -> None:
        """Has the poll woken, once, when so much was written; an earlier wish of it is void."""
        self.discard(poll)
        polls = self._at_bytes.get(at_bytes)
        if polls is None:
            polls = self._at_bytes[at_bytes] = Polls(at_bytes)
            heappush(self._heap, at_bytes)
        polls[poll] = None
        self._places[poll] = polls

    def discard(self, poll: Poll) -> None:
        """The poll waits no longer, nor for its turn."""
        polls = self._places.pop(poll, None)
        if polls is not None:
            polls.pop(poll, None)
            if not polls and self._at_bytes.get(polls.at_bytes) is polls:
                del self._at_bytes[polls.at_bytes]
                self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._at_bytes) + 16:
            self._heap = list(self._at_bytes)
            heapify(self._heap)

    def reached(self, written_bytes: int) -> None:
        """Wakes those for whom there may be enough now; neither they nor the others cost much."""
        heap = self._heap
        while heap and heap[0] <= written_bytes:
            polls = self._at_bytes.pop(heappop(heap), None)
            if polls is not None:
                self._woken(polls)

    def wake_all(self) -> None:
        """Something else than data: a role, an epoch, the log's start."""
        everybody, self._at_bytes, self._heap = self._at_bytes, {}, []
        for polls in everybody.values():
            self._woken(polls)


class Turns:
    """Work that may wait for what came in meanwhile: a little of it per turn of the loop."""

    __slots__ = (
        "_clock",
        "_gave_way",
        "_is_urgent",
        "_loop",
        "_over_ns",
        "_queue",
        "_scheduled",
        "_spent_ns",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        is_urgent: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._is_urgent = is_urgent
        """Whether something waits for the loop that must not wait for a turn."""
        self._queue: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._gave_way = False
        self._spent_ns = 0
        """By work that was done at once, less what passed between."""
        self._over_ns = 0
        """When the last of it was done."""

    def soon(self, work: Callable[[], None]) -> None:
        """Has it done, first come, first served."""
        self._queue.append(work)
        self._schedule()

    def soon_or_now(self, work: Callable[[], None]) -> None:
        """Does it at once, unless others wait or such work left the loop no time for anything else.

        Requests that come together are handed over back to back, before the loop looks at what
        else there is; one that comes a little later need not make the detour.
        """
        began_ns = self._clock.monotonic_ns()
        self._spent_ns = max(0, self._spent_ns - (began_ns - self._over_ns))
        if self._queue or self._spent_ns >= POLLS_AT_ONCE_US * 1000:
            self.soon(work)
            return
        work()
        self._over_ns = self._clock.monotonic_ns()
        self._spent_ns += self._over_ns - began_ns

    def look(self, polls: Polls) -> None:
        """Has each of them look again, in turn with all other work."""
        self.soon(partial(self._look, polls))

    def _look(self, polls: Polls) -> None:
        if not polls:
            return  # the rest of them were discarded
        poll, _ = polls.popitem(last=False)
        if polls:
            self._queue.append(partial(self._look, polls))
        poll.look_again()

    def _schedule(self) -> None:
        if self._queue and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if not self._gave_way and self._is_urgent():
            self._gave_way = True  # but not twice in a row: nobody waits for ever
            self._schedule()
            return
        self._gave_way = False
        self._spent_ns = 0
        until_ns = self._clock.monotonic_ns() + POLLS_AT_ONCE_US * 1000
        try:
            while self._queue:
                self._queue.popleft()()
                if self._clock.monotonic_ns() >= until_ns:
                    break
        finally:
            self._schedule()  # also after an error, which is one poll's and not the others'
