"""Preferred leaders return when too many of them do not lead."""

from tests.cluster.world import World

from chronik.cluster.balance import misled
from chronik.cluster.commands import AlterPartition, ElectionType, ElectLeaders


def caught_up(world: World, topic: str, *isr: int, partition: int) -> None:
    leader = world.partition(topic, partition).leader
    change = world.isr_change(topic, *isr, partition=partition)
    result = world.do(AlterPartition(leader, world.epoch(leader), (change,)))
    assert not result.partitions[0].error.failed


def test_a_broker_that_is_back_in_sync_gets_its_partitions_back() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2), (1, 2), (2, 1))
    assert misled(world.image, 10) == ()
    world.fence(1)
    world.beat(1)
    assert misled(world.image, 10) == (), "it is not in sync yet"
    caught_up(world, "t", 1, 2, partition=0)
    assert misled(world.image, 10) == (("t", 0),)
    caught_up(world, "t", 1, 2, partition=1)
    wanted = misled(world.image, 10)
    assert wanted == (("t", 0), ("t", 1))
    world.do(ElectLeaders(ElectionType.PREFERRED, wanted))
    assert [one.leader for one in world.image.topics["t"].partitions] == [1, 1, 2]
    assert misled(world.image, 10) == ()


def test_a_small_imbalance_is_left_alone() -> None:
    world = World(1, 2)
    world.topic("t", *[(1, 2)] * 10)
    world.fence(1)
    world.beat(1)
    for partition in range(10):
        caught_up(world, "t", 1, 2, partition=partition)
    most = tuple(("t", index) for index in range(9))
    world.do(ElectLeaders(ElectionType.PREFERRED, most))
    assert misled(world.image, 10) == ()
    assert misled(world.image, 9) == (("t", 9),)
