"""How often logs are synced in the background."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.kit import World, run

from chronik.broker.maintenance import UNSYNCED_CHECKPOINT_INTERVAL_S, Maintenance
from chronik.broker.partition import Partition
from chronik.trace.tracer import OFF


class Checkpointed:
    """The partitions of a node, and which of them were checkpointed."""

    def __init__(self, world: World) -> None:
        self._partitions = world.partitions
        self.seen: list[int] = []
        self.checkpoints = self

    def __iter__(self) -> Any:
        return iter(self._partitions)

    async def checkpoint(self, partition: Partition) -> None:
        self.seen.append(partition.index)

    async def write_points(self, partitions: object) -> None:
        """There is no disk."""


@pytest.mark.parametrize("sync", [True, False])
def test_a_new_log_without_syncs_is_not_synced_before_its_time(sync: bool) -> None:
    async def scenario() -> None:
        world, time_s = World(sync=sync), [1_000_000.0]
        partitions = Checkpointed(world)
        loop = SimpleNamespace(time=lambda: time_s[0])
        broker: Any = SimpleNamespace(partitions=partitions, loop=loop, tracer=OFF)
        maintenance = Maintenance(broker)
        await maintenance.checkpoint()
        assert not partitions.seen
        world.produce(world.partitions[0], 1)
        await world.settle()
        await maintenance.checkpoint()
        assert partitions.seen == ([0] if sync else [])
        time_s[0] += UNSYNCED_CHECKPOINT_INTERVAL_S
        await maintenance.checkpoint()
        assert partitions.seen == [0]
        time_s[0] += UNSYNCED_CHECKPOINT_INTERVAL_S
        await maintenance.checkpoint()
        assert partitions.seen == [0], "nothing was written since"
        world.produce(world.partitions[0], 2)
        await world.settle()
        await maintenance.checkpoint()
        assert partitions.seen == [0, 0]

    run(scenario)
