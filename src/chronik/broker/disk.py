"""Threads for blocking file work, so that a slow disk never holds the event loop."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")
Job = Callable[[], None]


class Disk:
    """A few worker threads; results come back on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: int = 4) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"disk-{i}", daemon=True)
            for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def workers(self) -> int:
        """How many jobs run at once."""
        return len(self._threads)

    def start(
        self, work: Callable[[], Result], done: Callable[[Result | BaseException], None]
    ) -> None:
        """Runs `work` in a thread, then `done` with its result or error on the loop."""

        def job() -> None:
            outcome: Result | BaseException
            try:
                outcome = work()
            except BaseException as error:  # noqa: BLE001 - it travels to `done`
                outcome = error
            self._loop.call_soon_threadsafe(done, outcome)

        self._jobs.put(job)

    def submit(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        """Runs `work` in a thread; the future has its result, also where nobody waits any more."""
        future: asyncio.Future[Result] = self._loop.create_future()

        def done(outcome: Result | BaseException) -> None:
            if future.cancelled():
                return
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.start(work, done)
        return future

    async def run(self, work: Callable[[], Result]) -> Result:
        """Runs `work` in a thread and waits for it."""
        return await self.submit(work)

    def close(self) -> None:
        """Lets the queued work finish and ends the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it holds what was written, whose memory others wait for
