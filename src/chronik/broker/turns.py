"""Turns of consumers on the event loop: what came in meanwhile, and every write, goes first.

A fetch is looked at when it is its turn: a few of them, then whatever else came in. And they give
way to a write: the disk's thread needs the GIL several times on its way, each of which could take
a switch interval while the loop is busy with fetches, and the acknowledgement waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from chronik.broker.clock import Clock
from chronik.broker.long_polls import Polls
from chronik.model.limits import POLLS_AT_ONCE_US, POLLS_GIVE_WAY_US


class Turns:
    """Work that may wait for what came in meanwhile: a little of it per turn of the loop."""

    __slots__ = (
        "_clock",
        "_crowded",
        "_gave_way",
        "_is_urgent",
        "_loop",
        "_over_ns",
        "_queue",
        "_scheduled",
        "_spent_ns",
        "_waiting",
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
        """Whether a write waits for the loop, or the loop for a write that will not take long."""
        self._queue: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._crowded = False
        """Whether the last turn was too short for all of them."""
        self._gave_way = False
        self._waiting: asyncio.TimerHandle | None = None
        """The end of giving way."""
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

    def go_on(self) -> None:
        """The write that they gave way to is done, or takes long."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
            self._loop.call_soon(self._run)

    def _schedule(self) -> None:
        if self._queue and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        if not self._gave_way and self._is_urgent():
            self._gave_way = True  # but not twice in a row: nobody waits for ever
            self._give_way()
            return
        self._scheduled = self._gave_way = False
        self._spent_ns = 0
        until_ns = self._clock.monotonic_ns() + POLLS_AT_ONCE_US * 1000
        try:
            while self._queue:
                self._queue.popleft()()
                if self._clock.monotonic_ns() >= until_ns:
                    break
        finally:
            self._crowded = bool(self._queue)
            self._schedule()  # also after an error, which is one poll's and not the others'

    def _give_way(self) -> None:
        if self._crowded:
            self._waiting = self._loop.call_later(POLLS_GIVE_WAY_US / 1e6, self.go_on)
        else:
            self._loop.call_soon(self._run)  # a few of them may well use the time of a sync
