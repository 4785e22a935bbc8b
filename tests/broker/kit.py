"""A partition on a simulated disk whose threads do nothing until they are told to."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from tests.clients.batches import Batch

from chronik.broker.clock import SystemClock
from chronik.broker.commit import GroupCommit
from chronik.broker.disk import Disk
from chronik.broker.metrics import Metrics
from chronik.broker.outbox import Outbox
from chronik.broker.partition import Partition
from chronik.broker.syncing import Syncing
from chronik.cluster.image import Topic
from chronik.model.errors import ErrorCode
from chronik.model.topic_configs import TopicConfig
from chronik.replica.state import Appended, Duplicate, ReplicaState
from chronik.sim.disk import SimDisk
from chronik.storage.log import Log
from chronik.storage.segment import LogConfig, Storage
from chronik.trace.tracer import OFF
from chronik.wire.records import Buffer, read_header, scan

Result = TypeVar("Result")
SYNCED_BY_KERNEL = ContextVar("SYNCED_BY_KERNEL", default=False)
_NEVER_READY = os.eventfd(0)


class StepDisk(Disk):
    """Jobs wait until `step` runs one of them, in any order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: int = 4) -> None:
        super().__init__(loop, 0)
        self._count = workers
        self.jobs: list[Callable[[], None]] = []

    @property
    def workers(self) -> int:
        return self._count

    def start(
        self, work: Callable[[], Result], done: Callable[[Result | BaseException], None]
    ) -> None:
        def job() -> None:
            outcome: Result | BaseException
            try:
                outcome = work()
            except BaseException as error:  # noqa: BLE001 - as the real one
                outcome = error
            done(outcome)

        self.jobs.append(job)

    def step(self, number: int = 0) -> None:
        self.jobs.pop(number)()


class StepKernel:
    """Syncs that the kernel does: they wait among the jobs of the disk until one is stepped."""

    def __init__(self, fs: SimDisk, jobs: list[Callable[[], None]]) -> None:
        self._fs, self._jobs = fs, jobs
        self._done: list[tuple[int, int]] = []
        self.ready = _NEVER_READY
        self.takes = True
        self.look: Callable[[], None] = lambda: None

    def submit(self, files: Sequence[tuple[int, int]]) -> int:
        if not self.takes:
            return 0
        for token, file in files:
            self._jobs.append(partial(self._sync, token, file))
        return len(files)

    def _sync(self, token: int, file: int) -> None:
        number = 0
        try:
            self._fs.fdatasync(file)
        except OSError as error:
            number = error.errno or errno.EIO
        self._done.append((token, number))
        self.look()

    def finished(self) -> list[tuple[int, int]]:
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        pass


class HandClock:
    """Its durations are what the test says."""

    def __init__(self) -> None:
        self._passed_ms = 0

    now_ms, now_ns = SystemClock().now_ms, SystemClock.now_ns

    def advance(self, by_ms: int) -> None:
        """Time passes."""
        self._passed_ms += by_ms

    def monotonic_ns(self) -> int:
        return self._passed_ms * 1_000_000


class SlowDisk(SimDisk):
    """Each write takes that long."""

    def __init__(self, clock: HandClock, write_ms: int) -> None:
        super().__init__()
        self._clock, self._write_ms = clock, write_ms

    def pwritev(self, file: int, buffers: Sequence[Buffer], position: int) -> int:
        self._clock.advance(self._write_ms)
        return super().pwritev(file, buffers, position)


class World:
    """A few partitions, one group commit, one disk."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        sync: bool = True,
        workers: int = 4,
        write_ms: int = 0,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = HandClock()
        self.fs = SlowDisk(self.clock, write_ms)
        self.fs.mkdir("/topics")
        self.fs.fsync_dir("/")
        self.volume = self.fs.open_volume("/topics")
        self.disk = StepDisk(self.loop, workers)
        self.kernel = StepKernel(self.fs, self.disk.jobs)
        syncing = Syncing(self.loop, self.kernel, self.clock)
        self.kernel.look = syncing.look
        used = syncing if SYNCED_BY_KERNEL.get() else None
        self.outbox = Outbox()
        self.commit = GroupCommit(self.loop, self.disk, self.clock, used, self.outbox)
        self.storage = Storage(self.fs)
        self.metrics = Metrics(1)
        self.partitions = [self.new_partition(n, sync=sync) for n in range(partitions)]
        self.answers: list[tuple[int, ErrorCode]] = []

    def new_partition(self, index: int, *, sync: bool = True) -> Partition:
        log = Log(self.storage, f"/topics/orders-{index}", LogConfig(), [], 0, 0)
        topic = Topic(id=b"orders--" * 2, name="orders")
        partition = Partition(
            topic, index, log, ReplicaState(0, 0, 0), self.metrics.topic("orders"), OFF
        )
        partition.configure(TopicConfig())
        partition.sync = sync
        return partition

    def produce(self, partition: Partition, number: int, values: int = 1, **fields: Any) -> int:
        """Appends as the handler does; the answer comes to `answers` as (number, code)."""
        payload = [f"{number}/{n}".encode() for n in range(values)]
        data = memoryview(bytearray(Batch(values=payload, **fields).encode()))
        appended = partition.append(data, read_header(data), 0)
        assert isinstance(appended, Appended | Duplicate)
        if isinstance(appended, Appended):
            self.commit.add(partition)
        waiters, reached = partition.waiters_for(committed=False)
        end_offset = appended.last_offset + 1
        if reached < end_offset:
            waiters.add(end_offset, partial(self._answer, number))
        else:
            self._answer(number, ErrorCode.NONE)
        return appended.base_offset

    def _answer(self, number: int, code: ErrorCode) -> None:
        self.answers.append((number, code))

    def is_failing(self) -> bool:
        return self.commit.failing is not None

    async def settle(self) -> None:
        """Runs the loop and the disk until nothing is left to do."""
        for _ in range(1000):
            await turn()
            if not self.disk.jobs:
                return
            self.disk.step()
        raise AssertionError("it never ends")


async def turn() -> None:
    """The loop handles what is ready, and what that makes ready."""
    for _ in range(4):
        await asyncio.sleep(0)


def contents(partition: Partition) -> list[tuple[int, bytes]]:
    """(base offset, records) of every committed batch."""
    found = partition.read(partition.state.log_start, 10**9, at_least_one_batch=True)
    if found is None:
        return []
    data = b"".join(found.slices)
    return [
        (header.base_offset, data[position + 61 : position + header.size])
        for position, header in scan(data)
    ]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs the coroutine; one that hangs fails at once instead of at the suite's time limit."""

    async def limited() -> None:
        async with asyncio.timeout(10):
            await test()

    asyncio.run(limited())
