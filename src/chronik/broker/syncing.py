"""Writes whose bytes are in the page cache, and which the kernel syncs by itself."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from chronik.broker.clock import Clock
from chronik.broker.partition import Partition
from chronik.storage.fs import FileSystem, RealFileSystem
from chronik.storage.kernel_sync import KernelSync
from chronik.storage.write import Write

SYNCS_MAX = 16
"""Under way at once; while they are, what comes for other partitions gathers."""


def open_syncing(fs: FileSystem, loop: asyncio.AbstractEventLoop, clock: Clock) -> "Syncing | None":
    """None where threads have to do it: no such kernel, or a file system of our own making."""
    kernel = KernelSync.open() if type(fs) is RealFileSystem else None
    return None if kernel is None else Syncing(loop, kernel, clock)


class Outcome(NamedTuple):
    """A write that is done, or the error that it met."""

    partition: Partition
    write: Write
    error: Exception | None
    duration_us: int


class Kernel(Protocol):
    """What syncs files while nobody waits (`storage.kernel_sync`)."""

    ready: int

    def submit(self, files: Sequence[tuple[int, int]]) -> int:
        """Begins with (token, file) pairs; how many it took."""

    def finished(self) -> list[tuple[int, int]]:
        """Token and error number of what is done."""

    def close(self) -> None:
        """Ends."""


class _UnderWay(NamedTuple):
    partition: Partition
    write: Write
    began_ns: int


class Syncing:
    """At most one sync for each partition, at most SYNCS_MAX in all."""

    def __init__(self, loop: asyncio.AbstractEventLoop, kernel: Kernel, clock: Clock) -> None:
        self._kernel = kernel
        self._clock = clock
        self._under_way: dict[int, _UnderWay] = {}
        self._token = 0
        self.done: Callable[[list[Outcome]], None] = lambda _: None
        """Called on the event loop with what is synced, or failed to be."""
        self._loop = loop
        loop.add_reader(kernel.ready, self.look)

    @property
    def room(self) -> int:
        """How many more may begin."""
        return SYNCS_MAX - len(self._under_way)

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    def begin(self, writes: list[tuple[Partition, Write]]) -> list[tuple[Partition, Write]]:
        """Begins to sync them; returns those that the kernel did not take."""
        began_ns = self._clock.monotonic_ns()
        pins = []
        try:
            for _, write in writes:
                pins.append(write.last_file())
        except OSError:
            pass  # a file that cannot be opened is not taken, nor what follows it
        token = self._token
        taken = self._submit(token, pins) if pins else 0
        for partition, write in writes[:taken]:
            self._under_way[token] = _UnderWay(partition, write, began_ns)
            token += 1
        self._token = token
        return writes[taken:]

    def _submit(self, token: int, pins: list[AbstractContextManager[int]]) -> int:
        """Each file is pinned until the kernel has it."""
        try:
            files = [(token + number, pin.__enter__()) for number, pin in enumerate(pins)]
            return self._kernel.submit(files)
        finally:
            for pin in pins:
                pin.__exit__(None, None, None)

    def look(self) -> None:
        """Takes what the kernel is done with."""
        now_ns = self._clock.monotonic_ns()
        done = []
        for token, number in self._kernel.finished():
            partition, write, began_ns = self._under_way.pop(token)
            error = None
            if number:
                error = OSError(number, os.strerror(number), write.parts[-1].segment.path)
            write.sync_ended(error)
            done.append(Outcome(partition, write, error, (now_ns - began_ns) // 1000))
        if done:
            self.done(done)

    def close(self) -> None:
        """Nothing is under way any more."""
        self._loop.remove_reader(self._kernel.ready)
        self._kernel.close()
