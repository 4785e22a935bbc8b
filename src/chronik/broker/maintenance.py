"""Work in the background: checkpoints, retention, silent producers, preferred leaders."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from chronik.broker.broker import Broker
from chronik.broker.controller import ControllerUnavailableError
from chronik.broker.partition import Partition
from chronik.broker.watermarks import CheckpointPace, Thresholds, WatermarkMonitor
from chronik.cluster.balance import misled
from chronik.cluster.commands import ElectionType, ElectLeaders
from chronik.model.broker_configs import effective

CHECKPOINT_INTERVAL_S = 5.0
WATERMARK_INTERVAL_S = 0.5
UNSYNCED_CHECKPOINT_INTERVAL_S = 60.0
"""For durability=os: a checkpoint syncs the log, which its owner chose not to pay for often."""

log = logging.getLogger(__name__)


class Maintenance:
    """Four loops, in the node's task group."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._checkpointed: dict[tuple[bytes, int], tuple[int, float]] = {}
        self._pace = CheckpointPace()
        self.monitor = WatermarkMonitor(broker.tracer)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begins; the loops end with `stop`."""
        self._tasks = [
            tasks.create_task(self._every(CHECKPOINT_INTERVAL_S, self.checkpoint)),
            tasks.create_task(self._every(WATERMARK_INTERVAL_S, self.watch_watermarks)),
            tasks.create_task(self._retain()),
            tasks.create_task(self._balance()),
        ]

    def stop(self) -> None:
        """Ends the loops."""
        for task in self._tasks:
            task.cancel()

    async def _every(self, interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self._guarded(work)

    async def _retain(self) -> None:
        while True:
            layers = self._broker.layers()
            interval_ms = int(str(effective("log.retention.check.interval.ms", layers)))
            await asyncio.sleep(interval_ms / 1000)
            await self._guarded(self.retain)

    async def _balance(self) -> None:
        while True:
            name = "leader.imbalance.check.interval.seconds"
            await asyncio.sleep(int(str(effective(name, self._broker.layers()))))
            await self._guarded(self.balance)

    async def balance(self) -> None:
        """As the controller: preferred leaders return where too many of them do not lead."""
        broker, layers = self._broker, self._broker.layers()
        if not broker.controller.leads or not effective("auto.leader.rebalance.enable", layers):
            return
        percent_max = int(str(effective("leader.imbalance.per.broker.percentage", layers)))
        partitions = misled(broker.controller.image, percent_max)
        if partitions:
            log.info("%d partitions go back to their preferred leaders", len(partitions))
            try:
                await broker.controller.submit(ElectLeaders(ElectionType.PREFERRED, partitions))
            except ControllerUnavailableError as error:
                log.info("the preferred leaders wait: %s", error)

    async def watch_watermarks(self) -> None:
        """Writes and judges the watermarks."""
        partitions, limits = self._broker.partitions, Thresholds.of(self._broker.layers())
        self.monitor.look(partitions, limits)
        now_ms = self._broker.clock.monotonic_ns() // 1_000_000
        if self._pace.is_due(partitions, now_ms, limits):
            self._pace.written(partitions, now_ms)
            await partitions.checkpoints.write_watermarks(partitions)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except OSError as error:
            log.error("background work failed, it is tried again: %s", error)  # noqa: TRY400
        except Exception:
            # A mistake in here must not take those down who produce and fetch.
            log.exception("background work failed unexpectedly, it is tried again")

    async def checkpoint(self) -> None:
        """Bounds the next recovery of every partition that was written to."""
        now_s = self._broker.loop.time()
        due = [one for one in self._broker.partitions if self._is_due(one, now_s)]
        for partition in due:
            await self._broker.partitions.checkpoint(partition)
            key = (partition.topic_id, partition.index)
            self._checkpointed[key] = (partition.log.end_offset, now_s)
        if due:
            await self._broker.partitions.checkpoints.write_points(self._broker.partitions)
            known = {(one.topic_id, one.index) for one in self._broker.partitions}
            self._checkpointed = {k: v for k, v in self._checkpointed.items() if k in known}

    def _is_due(self, partition: Partition, now_s: float) -> bool:
        if partition.log.end_offset == partition.checkpointed_at or not partition.has_directory:
            return False  # most of many
        key = (partition.topic_id, partition.index)
        # Seen for the first time it was just written to: as good as a checkpoint of what it was.
        end_offset, at_s = self._checkpointed.setdefault(key, (partition.opened_at_offset, now_s))
        if partition.log.end_offset == end_offset:
            return False
        return partition.sync or now_s - at_s >= UNSYNCED_CHECKPOINT_INTERVAL_S

    async def retain(self) -> None:
        """Lets go of what topics no longer keep, and of producers that fell silent."""
        broker = self._broker
        expiration_ms = int(str(effective("producer.id.expiration.ms", broker.layers())))
        silent_since_ms = broker.clock.now_ms() - expiration_ms
        for partition in list(broker.partitions):
            partition.state.producers.expire(silent_since_ms)
            if partition.has_directory:
                await broker.partitions.expire(partition)
