"""Group commit: what arrived on all partitions goes to the disk together, then the acks go out.

A cycle starts when the event loop has handled everything that came in and takes every partition
that has something to write. Several files are synced at once, and while they are, the next cycle's
batches gather. So cycles grow with the load.

A write is a copy into the page cache, shorter than two turns of a thread: the loop does it itself,
unless it is large, begins a file, or the last one was slow (`copies.py`). Then the kernel syncs it,
where it does so without a thread of ours (`syncing.py`); `durability=os` leaves that out. All else
is spread over the disk threads. What has followers is shown to them after the copy: they fetch,
write and sync it while it is synced here (Raft thesis, 10.2.1).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from chronik.broker.clock import Clock
from chronik.broker.copies import Copies
from chronik.broker.disk import Disk
from chronik.broker.outbox import Outbox
from chronik.broker.partition import Partition
from chronik.broker.refusals import say_refused
from chronik.broker.syncing import Outcome, Syncing
from chronik.model import limits
from chronik.model.errors import ErrorCode
from chronik.storage.compaction_swap import Swap
from chronik.storage.operations import (
    Checkpoint,
    Deletion,
    Reset,
    StartAdvance,
    Truncation,
)
from chronik.storage.write import Write

Maintenance = Checkpoint | Deletion | Reset | StartAdvance | Swap | Truncation


class GroupCommit:
    """Collects partitions with pending batches and writes them in cycles."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        disk: Disk,
        clock: Clock,
        syncing: Syncing | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self._loop = loop
        self._disk = disk
        self._clock = clock
        self._syncing = syncing
        """The kernel, where it syncs without a thread of ours."""
        if syncing is not None:
            syncing.done = self._done
        self._outbox = outbox if outbox is not None else Outbox()
        self._queue: deque[Partition] = deque()
        self._unsynced: deque[Partition] = deque()
        """Those whose durability is the operating system's."""
        self.copies = Copies(clock)
        self._retrying: set[Partition] = set()
        """Their last sync failed, and followers may have what it was for."""
        self._scheduled = False
        self._idle = disk.workers
        self._handed_over_ns = 0
        """When the disk was last given something to write."""
        self.urgent_done: Callable[[], None] = lambda: None
        """Called when a cycle is over: whoever gave way to it goes on."""
        self.broken: Callable[[Exception], None] = _raise_now
        """Told of an error that is none of the disk's: memory may not be what is on the disk, and
        producers wait for what never comes. So the node ends, and its next start reads the disk."""
        self._drained: asyncio.Future[None] | None = None
        self.failing: str | None = None
        """What the disk said when it last refused a write; None while it works."""
        self.cycles = 0
        self.bytes_written = 0
        self.disk_us = 0
        self.failures = 0

    def add(self, partition: Partition) -> None:
        """The partition has something to write."""
        self._enqueue(partition)
        if not self._scheduled and (self._unsynced or self._can_sync):
            self._scheduled = True
            self._loop.call_soon(self._start)

    def is_urgent(self) -> bool:
        """Whether a cycle starts when the loop comes to it, or is with the disk for a short time.

        Then the disk's thread needs the GIL, which a busy loop would give it only now and then.
        """
        if self._scheduled or self._idle == self._disk.workers:
            return self._scheduled
        since_ns = self._clock.monotonic_ns() - self._handed_over_ns
        return since_ns < limits.POLLS_GIVE_WAY_US * 1000

    def write(self, partitions: Iterable[Partition]) -> None:
        """As `add`, but the cycle starts now: all that comes together is here already."""
        for partition in partitions:
            self._enqueue(partition)
        if self._unsynced or self._can_sync:
            self._start()

    @property
    def _can_sync(self) -> bool:
        """True where a cycle need not wait for another one's end."""
        return self._idle > 0 or (self._syncing is not None and self._syncing.room > 0)

    def _enqueue(self, partition: Partition) -> None:
        if not partition.in_commit_queue and not partition.busy:
            partition.in_commit_queue = True
            (self._queue if partition.sync else self._unsynced).append(partition)

    async def operate(
        self,
        partition: Partition,
        plan: Callable[[], Maintenance | None],
        also: Callable[[], Callable[[], None]] | None = None,
    ) -> Maintenance | None:
        """Runs another operation on the partition's log, between two writes.

        `plan` is called when it is its turn and decides on the state of that moment; so is `also`,
        whose result runs in the disk thread after the operation. A deleted partition gets none.
        """
        await self.take(partition)
        if partition.gone:
            self.release(partition)
            return None
        done: asyncio.Future[Maintenance | None] = self._loop.create_future()
        try:
            operation = plan()
            after = also() if also is not None else None
        except BaseException:
            self.release(partition)
            raise
        if operation is None:
            self.release(partition)
            return None
        self._disk.start(
            partial(_execute, operation, after), partial(self._operated, partition, operation, done)
        )
        return await done

    async def take(self, partition: Partition) -> None:
        """Waits until nobody else works on the log; `release` gives it back."""
        if partition.busy:
            await self._turn(partition)
        partition.busy = True

    async def _turn(self, partition: Partition) -> None:
        turn: asyncio.Future[None] = self._loop.create_future()
        partition.turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.release(partition)  # it was given the log and does not want it any more
            raise

    def _operated(
        self,
        partition: Partition,
        operation: Maintenance,
        done: asyncio.Future[Maintenance | None],
        outcome: object,
    ) -> None:
        """The disk is done, whether or not somebody still waits for it."""
        if isinstance(outcome, BaseException):
            partition.log.abort(operation)
            if not done.done():
                done.set_exception(outcome)
        else:
            partition.log.apply(operation)
            if not done.done():
                done.set_result(operation)
        self.release(partition)

    async def drain(self) -> None:
        """Waits until nothing is queued or with the disk."""
        while not self._is_drained:
            self._drained = self._loop.create_future()
            await self._drained

    @property
    def _is_drained(self) -> bool:
        if self._queue or self._unsynced or self._idle != self._disk.workers:
            return False
        return self._syncing is None or self._syncing.is_idle

    def _notify_drained(self) -> None:
        if self._drained is not None and self._is_drained:
            self._drained.set_result(None)
            self._drained = None

    def _start(self) -> None:
        try:
            self._begin_cycle()
        except Exception as error:  # noqa: BLE001 - it is told to whoever ends the node
            self.broken(error)
            if self._queue or self._unsynced:
                self._loop.call_soon(self._start)  # the others' batches are as good as before

    def _begin_cycle(self) -> None:
        self._scheduled = False
        if self._unsynced:
            self._write_unsynced()
        if self._queue and self._syncing is not None and self.copies.are_quick:
            self._sync_by_kernel(self._syncing)
        while self._queue and self._idle > 0:
            self._sync_by_threads(self._take(self._queue, -(-len(self._queue) // self._idle)))
        self._notify_drained()  # the last ones may have been refused without the disk

    def _sync_by_kernel(self, syncing: Syncing) -> None:
        """The loop copies what is small into the page cache; threads get the rest."""
        quick, slow = [], []
        for one in self._take(self._queue, min(len(self._queue), syncing.room)):
            partition, write = one
            if write.sync_failed or not self.copies.is_quick(partition, write):
                slow.append(one)
            elif write.exposed or self._copy(partition, write):
                quick.append(one)
        if quick:
            self.cycles += 1
            slow += syncing.begin(quick)
        share = -(-len(slow) // max(1, self._idle))
        while slow:
            self._sync_by_threads(slow[:share])
            slow = slow[share:]

    def _sync_by_threads(self, writes: list[tuple[Partition, Write]]) -> None:
        writes = [one for one in writes if self._expose(*one)]
        if writes:
            self._hand_over(writes)

    def _hand_over(self, writes: list[tuple[Partition, Write]]) -> None:
        self._idle -= 1
        self.cycles += 1
        self._handed_over_ns = self._clock.monotonic_ns()
        self._disk.start(partial(self._write, writes), self._finish)

    def _expose(self, partition: Partition, write: Write) -> bool:
        """Shows followers what is to be synced; False where the disk refused even the copy."""
        if write.exposed or not partition.has_followers:
            return True
        return not self.copies.is_quick(partition, write) or self._copy(partition, write)

    def _copy(self, partition: Partition, write: Write) -> bool:
        """Into the page cache, where followers see it; False where the disk refused."""
        outcome = self._execute(partition, write, sync=False)
        if outcome.error is not None:
            self._settle_all([outcome])
            return False
        if outcome.duration_us > limits.WRITE_ON_LOOP_US_MAX:
            self.copies.watch(outcome)
        if partition.has_followers:
            partition.expose(write)
        return True

    def _write_unsynced(self) -> None:
        quick, slow = [], []
        for partition, write in self._take(self._unsynced, len(self._unsynced)):
            if not partition.sync and self.copies.is_quick(partition, write):
                quick.append((partition, write))
            else:
                slow.append((partition, write))
        if slow:
            self._hand_over(slow)
        if quick:
            self.cycles += 1
            self._settle_all(self._write(quick))
            self.urgent_done()

    def _take(self, queue: deque[Partition], share: int) -> list[tuple[Partition, Write]]:
        now_ms = self._clock.now_ms()
        writes = []
        for _ in range(share):
            partition = queue.popleft()
            partition.in_commit_queue = False
            if partition.busy or not (partition.has_pending or partition.is_unsynced):
                continue  # whoever has its log now gives it back through `release`
            try:
                write = partition.begin_write(now_ms)
            except OSError as error:
                self._failed(partition, error)
                partition.refuse_pending(ErrorCode.KAFKA_STORAGE_ERROR)
            except Exception as error:  # noqa: BLE001 - as above; those taken before are written
                partition.log.failed = True
                self.broken(error)
            else:
                partition.busy = True
                writes.append((partition, write))
        return writes

    def release(self, partition: Partition) -> None:
        """Whoever had the log is done with it: the next in turn, or what is pending."""
        while partition.turns:
            turn = partition.turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return  # still busy, for the next in turn
        partition.busy = False
        if partition.has_pending:
            self.add(partition)

    def _write(self, writes: list[tuple[Partition, Write]]) -> list[Outcome]:
        """Mostly in a disk thread: of the partition only `sync` and `has_directory` are used."""
        return [self._execute(partition, write, partition.sync) for partition, write in writes]

    def _execute(self, partition: Partition, write: Write, sync: bool) -> Outcome:
        began = self._clock.monotonic_ns()
        error: Exception | None = None
        try:
            partition.perform(write, sync=sync)
        except Exception as failure:  # noqa: BLE001 - answered to the producers, never success
            error = failure
        took_us = (self._clock.monotonic_ns() - began) // 1000
        return Outcome(partition, write, error, took_us)

    def _finish(self, outcomes: list[Outcome] | BaseException) -> None:
        self._idle += 1
        assert not isinstance(outcomes, BaseException), outcomes
        self._done(outcomes)

    def _done(self, outcomes: list[Outcome]) -> None:
        """The disk is done with some, by whatever way."""
        self._settle_all(outcomes)
        if self._queue and not self._scheduled:
            self._start()
        self.urgent_done()
        self._notify_drained()

    def _settle_all(self, outcomes: list[Outcome]) -> None:
        self._outbox.together(partial(self._settle_each, outcomes))

    def _settle_each(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            try:
                self._settle(outcome)
            except Exception as error:  # noqa: BLE001 - as above
                outcome.partition.log.failed = True  # the next start reads all of it
                self.broken(error)
            self.release(outcome.partition)
            if outcome.duration_us > limits.WRITE_ON_LOOP_US_MAX:
                self.copies.watch(outcome)

    def _settle(self, outcome: Outcome) -> None:
        partition, write, error, duration_us = outcome
        self.disk_us += duration_us
        if error is None:
            self.failing = None
            self.bytes_written += write.size
            partition.written(write, duration_us)
        else:
            self._failed(partition, error)
            partition.refused(write, ErrorCode.KAFKA_STORAGE_ERROR)
            if partition.is_unsynced:
                self._retry_later(partition)

    def _retry_later(self, partition: Partition) -> None:
        if partition not in self._retrying:
            self._retrying.add(partition)
            self._loop.call_later(limits.SYNC_RETRY_MS / 1000, self._retry, partition)

    def _retry(self, partition: Partition) -> None:
        self._retrying.discard(partition)
        if partition.busy and partition.is_unsynced:
            self._retry_later(partition)
        elif partition.is_unsynced:
            self.add(partition)

    def _failed(self, partition: Partition, error: Exception) -> None:
        self.failures += 1
        already, self.failing = self.failing, str(error)
        if already is None:  # one line per outage, not one per request
            say_refused(partition, error)


def _raise_now(error: Exception) -> None:
    raise error


def _execute(operation: Maintenance, after: Callable[[], None] | None) -> None:
    operation.execute()
    if after is not None:
        after()
