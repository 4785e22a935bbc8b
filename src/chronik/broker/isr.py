"""Keeps the in-sync replicas true: proposes to the controller who joins and who leaves (KIP-497).

A follower that is about to join counts for the watermark from the moment it is proposed; one that
is about to leave counts until the controller has agreed: the watermark is right whatever comes. A
proposal of unknown fate may yet be agreed to, so it counts, and is repeated, until it is settled.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from chronik.broker.clock import Clock
from chronik.broker.controller import Controller, ControllerUnavailableError
from chronik.broker.partition import Partition
from chronik.cluster.commands import AlterPartition, IsrChange
from chronik.model.broker_configs import effective
from chronik.model.configs import BrokerLayers

CHECK_INTERVAL_S = 1.0
RETRY_S = 0.1

log = logging.getLogger(__name__)


class IsrKeeper:
    """Watches the partitions that this node leads; one command at a time carries all proposals."""

    def __init__(
        self,
        node_id: int,
        controller: Controller,
        partitions: Iterable[Partition],
        clock: Clock,
        layers: Callable[[], BrokerLayers],
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._partitions = partitions
        self._clock = clock
        self._layers = layers
        self._tasks: list[asyncio.Task[None]] = []
        self._proposals: dict[Partition, IsrChange] = {}
        self._work = asyncio.Event()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begins to look for laggards and to submit what is proposed."""
        self._tasks = [tasks.create_task(self._watch()), tasks.create_task(self._send())]

    def stop(self) -> None:
        """Ends."""
        for task in self._tasks:
            task.cancel()

    def follower_fetched(self, partition: Partition) -> None:
        """A follower moved: it may belong to the ISR now."""
        state = partition.state
        if len(state.maximal_isr) == len(state.followers) or partition.isr_proposed is not None:
            return
        joining = {one for one in state.may_join_isr() if self._may_join(partition, one)}
        if joining:
            self._propose(partition, state.maximal_isr | joining)

    def _may_join(self, partition: Partition, node_id: int) -> bool:
        """Live, and the process that fetched is the one that is registered now (KIP-903)."""
        broker = self._controller.image.brokers.get(node_id)
        epoch = partition.state.followers[node_id].broker_epoch
        return broker is not None and broker.live and broker.epoch == epoch

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            self.look()

    def look(self) -> None:
        """Proposes those to leave that have lagged for too long."""
        lag_ms_max = int(str(effective("replica.lag.time.max.ms", self._layers())))
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            state = partition.state
            proposed = partition.isr_proposed is not None
            if not state.is_leader or proposed:
                continue
            # An idle partition is not fetched again: who could not join before may do so now.
            self.follower_fetched(partition)
            if partition.isr_proposed is not None or not state.maximal_isr:
                continue
            leaving = state.must_leave_isr(now_ms, lag_ms_max)
            if leaving:
                self._propose(partition, state.maximal_isr - leaving)

    def _propose(self, partition: Partition, others: set[int]) -> None:
        assigned = self._controller.image.partition(partition.topic, partition.index)
        if assigned is None or assigned.leader != self._node_id:
            return
        followers = partition.state.followers
        joining = others - set(assigned.isr)
        partition.isr_proposed = frozenset(others)
        partition.state.maximal_isr |= others
        self._proposals[partition] = IsrChange(
            partition.topic_id,
            partition.index,
            assigned.leader_epoch,
            assigned.partition_epoch,
            tuple(
                (one, followers[one].broker_epoch if one in joining else -1)
                for one in sorted(others | {self._node_id})
            ),
        )
        self._work.set()

    async def _send(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            proposals, self._proposals = self._proposals, {}
            broker = self._controller.image.brokers.get(self._node_id)
            if broker is not None:
                await self._submit(proposals, broker.epoch)
            else:
                # Unregistered: whoever leads instead decides. What was proposed here is void.
                for partition in proposals:
                    self._settle(partition)

    async def _submit(self, proposals: dict[Partition, IsrChange], broker_epoch: int) -> None:
        command = AlterPartition(self._node_id, broker_epoch, tuple(proposals.values()))
        try:
            answer = await self._controller.submit(command)
        except ControllerUnavailableError as error:
            log.info("the ISR of %d partitions waits: %s", len(proposals), error)
            self._proposals = {**proposals, **self._proposals}
            self._work.set()
            await asyncio.sleep(RETRY_S)
            return
        if answer.error.failed:
            log.info("no change of the ISR: %s", answer.error.message)
        for result in answer.partitions:
            if result.error.failed:
                log.info("the ISR of a partition: %s", result.error.message)
        for partition in proposals:
            self._settle(partition)

    def _settle(self, partition: Partition) -> None:
        """Back to what the controller says, whatever came of the proposal."""
        partition.isr_proposed = None
        assigned = self._controller.image.partition(partition.topic, partition.index)
        if assigned is not None and partition.state.is_leader and not partition.gone:
            partition.assign(assigned, self._node_id, self._clock.now_ms())
