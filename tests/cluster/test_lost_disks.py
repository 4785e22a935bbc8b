"""A broker comes back with another disk: what it had it no longer has, whatever the ISR says."""

from tests.cluster.world import World

from chronik.cluster.commands import ElectionType, ElectLeaders
from chronik.cluster.image import NO_LEADER
from chronik.model.errors import ErrorCode as E

OLD, NEW = b"o" * 16, b"n" * 16


def world_with_disks(*brokers: int) -> World:
    world = World()
    for broker in brokers:
        world.join(broker, disk=OLD)
    return world


def test_fm47_a_lost_disk_leaves_every_isr_that_has_another_member() -> None:
    world = world_with_disks(1, 2, 3)
    world.topic("t", (1, 2, 3), (2, 3, 1))
    world.join(1, disk=NEW)
    assert [one.leader for one in world.image.topics["t"].partitions] == [2, 2]
    assert [one.isr for one in world.image.topics["t"].partitions] == [(2, 3), (2, 3)]


def test_fm47_the_only_in_sync_disk_is_lost_and_the_partition_waits_for_an_operator() -> None:
    world = world_with_disks(1, 2)
    world.topic("t", (1, 2))
    world.fence(2)
    world.beat(2)
    world.join(1, disk=NEW)
    state = world.partition("t")
    assert (state.leader, state.isr) == (NO_LEADER, ())
    for broker in (1, 2):
        world.fence(broker)
        world.beat(broker)
    world.join(1, disk=NEW)
    assert world.partition("t") == state, "an empty log must not lead by itself"
    (refused,) = world.do(ElectLeaders(ElectionType.PREFERRED, (("t", 0),)))
    assert refused.error.code is E.PREFERRED_LEADER_NOT_AVAILABLE
    (allowed,) = world.do(ElectLeaders(ElectionType.UNCLEAN, (("t", 0),)))
    assert not allowed.error.failed
    assert world.partition("t").leader in {1, 2}


def test_fm47_a_dead_member_of_the_isr_that_has_its_disk_leads_when_it_is_back() -> None:
    world = world_with_disks(1, 2, 3)
    world.topic("t", (1, 2, 3), min_insync_replicas="2")
    world.register(3, disk=OLD)
    world.register(2, disk=OLD)  # with one left, a process that died stays in the ISR
    assert world.partition("t").isr == (1, 2)
    world.join(1, disk=NEW)
    assert (world.partition("t").leader, world.partition("t").isr) == (NO_LEADER, (2,))
    world.beat(2)
    assert world.partition("t").leader == 2


def test_where_unclean_election_is_allowed_a_replica_with_its_disk_leads_at_once() -> None:
    world = world_with_disks(1, 2)
    world.topic("t", (1, 2), unclean_leader_election_enable="true")
    world.fence(2)
    world.beat(2)
    world.register(1, disk=NEW)
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))


def test_the_same_disk_and_disks_that_were_never_named_change_nothing() -> None:
    world = World(1)
    world.topic("t", (1,))
    world.join(1, disk=OLD)
    world.join(1, disk=OLD)
    assert (world.partition("t").leader, world.partition("t").isr) == (1, (1,))
