"""Queues of those who wait until a partition has reached an offset."""

import asyncio
from collections import deque
from collections.abc import Callable

from chronik.model.errors import ErrorCode

Released = Callable[[ErrorCode], None]
"""Called once: NONE when the offset is reached, else what is wrong with it."""


class Waiters:
    """Those who wait for an offset, the nearest first: the others cost a release nothing."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[int, Released]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, offset: int, released: Released) -> None:
        """Waits for `offset`; a duplicate may wait for less than the newest append does."""
        queue = self._queue
        if queue and offset < queue[-1][0]:
            self._queue = deque(sorted([*queue, (offset, released)], key=lambda waiter: waiter[0]))
        else:
            queue.append((offset, released))

    def reached(self, offset: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """Releases everybody up to `offset`."""
        queue = self._queue
        while queue and queue[0][0] <= offset:
            queue.popleft()[1](code)

    def failed_beyond(self, offset: int, code: ErrorCode) -> None:
        """Tells everybody beyond `offset` that it will not come."""
        failed = []
        while self._queue and self._queue[-1][0] > offset:
            failed.append(self._queue.pop()[1])
        for released in reversed(failed):
            released(code)


async def until(waiters: Waiters, offset: int, timeout_s: float) -> ErrorCode:
    """NONE when `offset` is reached, else what is wrong with it; or it takes too long."""
    released: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def release(code: ErrorCode) -> None:
        if not released.done():  # nobody waits any more
            released.set_result(code)

    waiters.add(offset, release)
    try:
        async with asyncio.timeout(timeout_s):
            return await released
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
