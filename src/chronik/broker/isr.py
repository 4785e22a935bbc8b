"""Keeps the in-sync replicas true: proposes to the controller who joins and who leaves (KIP-497).

A follower that is about to join counts for the watermark from the moment it is proposed; one that
is about to leave counts until the controller has agreed: the watermark is right whatever comes.
"""

import asyncio
import logging

from chronik.broker.clock import Clock
from chronik.broker.controller import Controller, ControllerUnavailableError
from chronik.broker.partition import Partition
from chronik.broker.partitions import Partitions
from chronik.cluster.commands import AlterPartition, IsrChange
from chronik.model.broker_configs import effective
from chronik.model.configs import BrokerLayers

CHECK_INTERVAL_S = 1.0

log = logging.getLogger(__name__)


class IsrKeeper:
    """Watches the partitions that this node leads."""

    def __init__(
        self, node_id: int, controller: Controller, partitions: Partitions, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._partitions = partitions
        self._clock = clock
        self._tasks: asyncio.TaskGroup | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begins to look for laggards."""
        self._tasks = tasks
        self._task = tasks.create_task(self._watch())

    def stop(self) -> None:
        """Ends."""
        if self._task is not None:
            self._task.cancel()

    def follower_fetched(self, partition: Partition) -> None:
        """A follower moved: it may belong to the ISR now."""
        state = partition.state
        if len(state.maximal_isr) == len(state.followers) or partition.isr_proposed:
            return
        joining = state.may_join_isr() & self._live()
        if joining:
            self._propose(partition, state.maximal_isr | joining)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            lag_ms_max = self._lag_ms_max()
            now_ms = self._clock.now_ms()
            for partition in self._partitions:
                state = partition.state
                if not state.is_leader or partition.isr_proposed or not state.maximal_isr:
                    continue
                leaving = state.must_leave_isr(now_ms, lag_ms_max)
                if leaving:
                    self._propose(partition, state.maximal_isr - leaving)

    def _lag_ms_max(self) -> int:
        layers = self._controller.image.layers(self._node_id, {})
        return _lag_ms_max(layers)

    def _live(self) -> set[int]:
        return {one.id for one in self._controller.image.live_brokers()}

    def _propose(self, partition: Partition, others: set[int]) -> None:
        assert self._tasks is not None
        partition.isr_proposed = True
        partition.state.maximal_isr |= others
        self._tasks.create_task(self._submit(partition, tuple(sorted(others | {self._node_id}))))

    async def _submit(self, partition: Partition, isr: tuple[int, ...]) -> None:
        image = self._controller.image
        assigned = image.partition(partition.topic, partition.index)
        broker = image.brokers.get(self._node_id)
        try:
            if assigned is None or broker is None or assigned.leader != self._node_id:
                return
            change = IsrChange(
                partition.topic_id,
                partition.index,
                assigned.leader_epoch,
                assigned.partition_epoch,
                tuple((one, -1) for one in isr),
            )
            answer = await self._controller.submit(
                AlterPartition(self._node_id, broker.epoch, (change,))
            )
            for result in answer.partitions:
                if result.error.failed:
                    log.info("%s-%d: %s", partition.topic, partition.index, result.error.message)
        except ControllerUnavailableError as error:
            log.info("the ISR of %s-%d waits: %s", partition.topic, partition.index, error)
        finally:
            partition.isr_proposed = False
            self._settle(partition)

    def _settle(self, partition: Partition) -> None:
        """Back to what the controller says, whatever came of the proposal."""
        assigned = self._controller.image.partition(partition.topic, partition.index)
        if assigned is not None and partition.state.is_leader:
            partition.assign(assigned, self._node_id, self._clock.now_ms())


def _lag_ms_max(layers: BrokerLayers) -> int:
    return int(str(effective("replica.lag.time.max.ms", layers)))
