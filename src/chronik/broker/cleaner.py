"""Compaction in the background: the dirtiest log first, one at a time, on a thread of its own.

The long part of a cleaning runs in that thread, in slices with pauses between them, because its
work holds the interpreter and the event loop needs it too. Only the swap of a cleaned segment for
the old ones goes through the partition's turn, between two writes.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from chronik.broker.clock import Clock
from chronik.broker.commit import GroupCommit
from chronik.broker.disk import Disk
from chronik.broker.partition import Partition
from chronik.model.broker_configs import effective
from chronik.model.configs import BrokerLayers
from chronik.model.limits import OFFSET_MAP_BYTES_MAX
from chronik.model.topic_configs import TopicConfig
from chronik.storage.compaction import Compaction
from chronik.storage.compaction_files import DamagedBatchError
from chronik.storage.compaction_plan import CompactionRules, Plan, plan
from chronik.storage.compaction_swap import Cleaned, discard_cleaned

SLICE_NS = 2_000_000
"""Work between two pauses: the event loop waits no longer than this for the interpreter."""
PAUSE_S = 0.002

log = logging.getLogger(__name__)


class Owner(Protocol):
    """What the cleaner needs of a `Broker`."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def commit(self) -> GroupCommit: ...
    @property
    def partitions(self) -> Iterable[Partition]: ...
    def layers(self) -> BrokerLayers: ...


class CleaningStoppedError(Exception):
    """The node stops: the cleaning ends where it is."""


class Throttle:
    """Called all the time by the thread that cleans; sleeps when its slice of time is used up."""

    __slots__ = ("_clock", "_until_ns", "stopped")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ns = 0
        self.stopped = False

    def __call__(self) -> None:
        if self._clock.monotonic_ns() < self._until_ns:
            return
        if self.stopped:
            raise CleaningStoppedError
        time.sleep(PAUSE_S)
        self._until_ns = self._clock.monotonic_ns() + SLICE_NS


class Cleaner:
    """One loop in the node's task group, one thread."""

    def __init__(
        self,
        broker: Owner,
        map_bytes_max: int = OFFSET_MAP_BYTES_MAX,
        throttle: Throttle | None = None,
    ) -> None:
        self._broker = broker
        self._map_bytes_max = map_bytes_max
        self._throttle = throttle or Throttle(broker.clock)
        self._wake = asyncio.Event()
        self._thread: Disk | None = None
        self._task: asyncio.Task[None] | None = None
        self._uncleanable: set[tuple[bytes, int]] = set()
        """Damaged logs: left alone until the next start, as Kafka does."""
        self._skipped: set[tuple[bytes, int]] = set()
        """Those that failed since the last pause: the others get their turn."""
        self.cleanings = 0
        self.failures = 0
        self.bytes_read = 0
        self.bytes_written = 0

    # -- life

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begins; ends with `stop`."""
        self._task = tasks.create_task(self._run())

    def stop(self) -> None:
        """Ends the cleaning that runs, at once but never in the middle of a swap."""
        self._throttle.stopped = True
        self._wake.set()

    async def stopped(self) -> None:
        """Waits until nothing of it touches a file; after `stop`, before the logs are closed."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def close(self) -> None:
        """Ends the thread, which has nothing more to do or notices within milliseconds."""
        self.stop()
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    async def _run(self) -> None:
        try:
            while not self._throttle.stopped:
                if not await self.clean_dirtiest():
                    await self._pause()
        finally:
            self.close()

    async def _pause(self) -> None:
        self._skipped.clear()
        backoff_ms = int(str(effective("log.cleaner.backoff.ms", self._broker.layers())))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), max(backoff_ms, 1) / 1000)

    # -- choosing

    async def clean_dirtiest(self) -> bool:
        """Cleans the log that needs it most; False where none needs it or the node stops."""
        if not effective("log.cleaner.enable", self._broker.layers()):
            return False
        found = self._dirtiest()
        if found is None:
            return False
        partition, work = found
        try:
            if await self._clean(partition, work):
                self.cleanings += 1
                return True
        except CleaningStoppedError:
            return False
        except Exception as error:  # noqa: BLE001 - told, and no reason for the node to end
            self._failed(partition, error)
        self._skipped.add((partition.topic_id, partition.index))
        return True

    def _dirtiest(self) -> tuple[Partition, Plan] | None:
        best: tuple[Partition, Plan] | None = None
        for partition in self._broker.partitions:
            work = self._planned(partition)
            if work is not None and (best is None or work.dirty_ratio > best[1].dirty_ratio):
                best = partition, work
        return best

    def _planned(self, partition: Partition) -> Plan | None:
        key = (partition.topic_id, partition.index)
        if not partition.config.compacted or key in self._uncleanable or key in self._skipped:
            return None
        if not partition.has_directory or partition.log.failed:
            return None
        now_ms, watermark = self._broker.clock.now_ms(), partition.state.high_watermark
        try:
            work = plan(partition.log, rules_of(partition.config), watermark, now_ms)
        except OSError as error:
            self._failed(partition, error)
            self._skipped.add(key)
            return None
        return work if work is not None and work.is_due else None

    def _failed(self, partition: Partition, error: Exception) -> None:
        name = f"{partition.topic}-{partition.index}"
        if partition.gone or isinstance(error, FileNotFoundError):
            log.info("%s: segments went away while it was cleaned", name)
            return
        self.failures += 1
        if isinstance(error, OSError):
            log.error("cannot compact %s, it is tried again: %s", name, error)
            return
        self._uncleanable.add((partition.topic_id, partition.index))
        trace = None if isinstance(error, DamagedBatchError) else error
        log.error("%s is not compacted until the next start: %s", name, error, exc_info=trace)

    # -- cleaning

    async def _clean(self, partition: Partition, work: Plan) -> bool:
        began_ns = self._broker.clock.monotonic_ns()
        compaction = Compaction(
            work,
            self._broker.clock.now_ms(),
            last_offsets(partition),
            self._throttle,
            self._map_bytes_max,
        )
        self._broker.commit.copies.others_writing += 1
        try:
            whole = await self._rewrite(partition, compaction)
        finally:
            self._broker.commit.copies.others_writing -= 1
            if self._thread is not None:
                # Not here: to free a large map holds the interpreter; the thread does it in slices.
                self._thread.start(compaction.close, lambda _: None)
        if whole:
            took_s = (self._broker.clock.monotonic_ns() - began_ns) / 1e9
            self._tell(partition, compaction, took_s)
        return whole and compaction.end_offset > work.first_dirty_offset

    async def _rewrite(self, partition: Partition, compaction: Compaction) -> bool:
        """All segments, one after the other; False where the log has changed meanwhile."""
        await self._in_thread(compaction.build_map)
        groups = compaction.groups()
        for group in groups:
            rewrite = partial(compaction.rewrite, group, last=group is groups[-1])
            if not await self._replace(partition, await self._in_thread(rewrite)):
                return False
        return True

    def _tell(self, partition: Partition, compaction: Compaction, took_s: float) -> None:
        progress = compaction.progress
        self.bytes_read += progress.bytes_read
        self.bytes_written += progress.bytes_written
        log.info(
            "compacted %s-%d up to offset %d: kept %d of %d records, %d of %d bytes, in %.1f s",
            partition.topic,
            partition.index,
            compaction.end_offset,
            progress.records_kept,
            progress.records_read,
            progress.bytes_written,
            progress.bytes_read,
            took_s,
        )

    async def _replace(self, partition: Partition, cleaned: Cleaned) -> bool:
        """The swap, when it is the partition's turn; False where the log has changed since."""
        if cleaned.new_index is None and cleaned.first_dirty_offset is None:
            return True

        def swap() -> Any:
            return partition.log.swap(cleaned)

        try:
            replaced = await self._broker.commit.operate(partition, swap)
        except OSError:
            await self._discard(partition, cleaned)
            raise
        if replaced is None:
            await self._discard(partition, cleaned)
        return replaced is not None

    async def _discard(self, partition: Partition, cleaned: Cleaned) -> None:
        fs, directory = partition.log.storage.fs, partition.log.directory
        with suppress(OSError):
            await self._in_thread(lambda: discard_cleaned(fs, directory, cleaned))

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        if self._thread is None:
            self._thread = Disk(self._broker.loop, workers=1)
        return await self._thread.run(work)


def rules_of(config: TopicConfig) -> CompactionRules:
    """The topic's configuration as far as compaction is concerned."""
    return CompactionRules(
        dirty_ratio_min=config.min_cleanable_dirty_ratio,
        lag_ms_min=config.min_compaction_lag_ms,
        lag_ms_max=config.max_compaction_lag_ms,
        delete_retention_ms=config.delete_retention_ms,
    )


def last_offsets(partition: Partition) -> dict[int, int]:
    """Where the last committed batch of each producer ends: these batches are kept."""
    watermark = partition.state.high_watermark
    found: dict[int, int] = {}
    for producer in partition.state.producers:
        for batch in producer.batches:
            if batch.last_offset < watermark:
                found[producer.producer_id] = batch.last_offset
    return found
