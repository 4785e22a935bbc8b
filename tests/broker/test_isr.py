"""Who is proposed to join and to leave the in-sync replicas, and what becomes of a proposal."""

import asyncio
from typing import Any, TypeVar, cast

from tests.broker.kit import World, run, turn

from chronik.broker.clock import SystemClock
from chronik.broker.controller import Controller
from chronik.broker.isr import IsrKeeper
from chronik.broker.partition import Partition
from chronik.cluster.apply import apply
from chronik.cluster.commands import (
    BrokerHeartbeat,
    Command,
    ControllerSettings,
    CreateCluster,
    CreateTopics,
    NewTopic,
    RegisterBroker,
    UnregisterBroker,
)
from chronik.cluster.decide import decide
from chronik.cluster.image import EMPTY, ClusterImage, Endpoint
from chronik.model.configs import BrokerLayers

R = TypeVar("R")
TOPIC_ID = b"orders--" * 2


class Decides:
    """A controller that decides at once."""

    def __init__(self) -> None:
        self.image: ClusterImage = EMPTY
        self.commands: list[object] = []
        self.do(CreateCluster("c"))
        for node in (1, 2):
            epoch = self.do(
                RegisterBroker(node, bytes([node]) * 16, (Endpoint("P", "h", 1),))
            ).epoch
            self.do(BrokerHeartbeat(node, epoch))
        self.do(CreateTopics((NewTopic("orders", TOPIC_ID, 1, 2),)))

    def do(self, command: Command[R]) -> R:
        decision = decide(self.image, command, ControllerSettings())
        self.image = apply(self.image, decision.records, self.image.version + 1)
        return decision.result

    async def submit(self, command: Command[R]) -> R:
        self.commands.append(command)
        return self.do(command)


class Stage:
    """The leader of one partition with one follower, at a time that is set."""

    def __init__(self, **static: str) -> None:
        self.controller = Decides()
        assigned = self.controller.image.topics["orders"].partitions[0]
        self.leader = assigned.leader
        self.follower = next(one for one in assigned.replicas if one != self.leader)
        self.clock = Time()
        self.partition: Partition = World().partitions[0]
        self.partition.assign(assigned, self.leader, self.clock.now_ms())
        self.keeper = IsrKeeper(
            self.leader,
            cast("Controller", self.controller),
            [self.partition],
            self.clock,
            lambda: BrokerLayers(static={key.replace("_", "."): v for key, v in static.items()}),
        )

    @property
    def isr(self) -> set[int]:
        return set(self.controller.image.topics["orders"].partitions[0].isr)

    def append(self) -> None:
        self.partition.state.log_end += 1
        self.partition.state.durable_end += 1


class Time(SystemClock):
    ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


async def keeping(stage: Stage, scenario: Any) -> None:
    async with asyncio.TaskGroup() as tasks:
        stage.keeper.start(tasks)
        await scenario()
        stage.keeper.stop()


def test_a_follower_that_lags_for_too_long_leaves() -> None:
    """How long is what the node's own configuration says."""

    async def scenario() -> None:
        stage = Stage(replica_lag_time_max_ms="5000")
        assert stage.isr == {1, 2}
        stage.append()

        async def lag() -> None:
            stage.clock.ms += 4_000
            stage.keeper.look()
            await turn()
            assert stage.isr == {1, 2}
            stage.clock.ms += 2_000
            stage.keeper.look()
            await turn()
            assert stage.isr == {stage.leader}

        await keeping(stage, lag)

    run(scenario)


def test_a_proposal_of_a_node_that_was_unregistered_is_void() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.append()
        stage.clock.ms += 60_000
        stage.keeper.look()
        assert stage.partition.isr_proposed is not None
        stage.controller.do(UnregisterBroker(stage.leader))

        async def nobody_is_asked() -> None:
            await turn()
            assert not stage.controller.commands
            assert stage.partition.isr_proposed is None, "else it never proposes again"

        await keeping(stage, nobody_is_asked)

    run(scenario)
