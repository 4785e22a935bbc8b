"""ISR changes proposed by leaders, elections on request, and moving replicas."""

from dataclasses import replace

import pytest
from tests.cluster.world import World, refusal, topic_id

from chronik.cluster.commands import (
    AlterPartition,
    AlterReassignments,
    BrokerHeartbeat,
    ElectionType,
    ElectLeaders,
    IsrChange,
    IsrChanged,
    PartitionsAltered,
    Reassignment,
)
from chronik.cluster.image import NO_LEADER
from chronik.model.errors import ErrorCode as E

PREFERRED, UNCLEAN = ElectionType


def three() -> World:
    world = World(1, 2, 3)
    world.topic("t", (1, 2, 3))
    return world


def propose(world: World, *changes: IsrChange, broker: int = 1) -> PartitionsAltered:
    return world.do(AlterPartition(broker, world.epoch(broker), changes))


def propose_one(world: World, change: IsrChange, broker: int = 1) -> IsrChanged:
    (result,) = propose(world, change, broker=broker).partitions
    return result


def test_a_leader_shrinks_and_expands_the_isr() -> None:
    world = three()
    result = propose_one(world, world.isr_change("t", 1, 2))
    assert (result.leader, result.isr, result.partition_epoch) == (1, (1, 2), 1)
    result = propose_one(world, world.isr_change("t", 3, 2, 1))
    assert (result.isr, result.partition_epoch, result.leader_epoch) == ((1, 2, 3), 2, 0)
    assert world.partition("t").isr == (1, 2, 3)


def test_the_same_isr_changes_nothing_and_tells_the_state() -> None:
    world = three()
    result = propose_one(world, world.isr_change("t", 3, 1, 2))
    assert (result.error.code, result.partition_epoch) == (E.NONE, 0)


def shifted(world: World, **shift: int) -> IsrChange:
    change = world.isr_change("t", 2, 3)
    return replace(
        change,
        leader_epoch=change.leader_epoch + shift.get("leader", 0),
        partition_epoch=change.partition_epoch + shift.get("partition", 0),
    )


@pytest.mark.parametrize(
    ("shift", "code"),
    [
        ({"leader": -1}, E.FENCED_LEADER_EPOCH),
        ({"partition": -1}, E.INVALID_UPDATE_VERSION),
        ({"leader": 1}, E.NOT_CONTROLLER),
        ({"partition": 1}, E.NOT_CONTROLLER),
    ],
)
def test_fm50_epochs_fence_a_proposal(shift: dict[str, int], code: E) -> None:
    world = three()
    world.fence(1)
    assert world.partition("t").leader == 2
    before = world.image
    assert refusal(propose_one(world, shifted(world, **shift), broker=2).error)[0] is code
    assert world.image == before


@pytest.mark.parametrize(
    ("isr", "broker", "text"),
    [
        ((1, 2), 2, "Broker 2 does not lead the partition, broker 1 does."),
        ((2, 3), 1, "does not include the leader 1"),
        ((1, 1), 1, "is not part of the replicas"),
        ((), 1, "does not include the leader 1"),
        ((1, 4), 1, "is not part of the replicas"),
    ],
)
def test_a_wrong_proposal_is_refused(isr: tuple[int, ...], broker: int, text: str) -> None:
    world = three()
    world.join(4)
    result = propose_one(world, world.isr_change("t", *isr), broker)
    code, message = refusal(result.error)
    assert (code, text in message) == (E.INVALID_REQUEST, True), message


@pytest.mark.parametrize("how", ["fenced", "stopping", "restarted", "stale"])
def test_a_replica_that_is_not_live_cannot_join_the_isr(how: str) -> None:
    world = three()
    propose(world, world.isr_change("t", 1, 2))
    change = world.isr_change("t", 1, 2, 3)
    if how == "fenced":
        world.fence(3)
    elif how == "stopping":
        world.do(BrokerHeartbeat(3, world.epoch(3), want_shutdown=True))
    elif how == "restarted":
        world.register(3)
    else:
        # The fetches that made the leader propose it came from the earlier process (KIP-903).
        world.join(3)
    assert refusal(propose_one(world, change).error)[0] is E.INELIGIBLE_REPLICA


def test_an_epoch_that_is_not_given_is_not_checked() -> None:
    world = three()
    change = replace(world.isr_change("t"), isr=((1, -1), (3, -1)))
    assert propose_one(world, change).isr == (1, 3)


def test_unknown_partitions_and_stale_brokers_are_refused() -> None:
    world = three()
    change = world.isr_change("t", 1)
    unknown = replace(change, topic_id=b"\x09" * 16)
    beyond = replace(change, partition=5)
    results = propose(world, unknown, beyond, change, change).partitions
    assert [result.error.code for result in results] == [
        E.UNKNOWN_TOPIC_ID,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NONE,
        E.INVALID_REQUEST,
    ]
    stale = world.do(AlterPartition(1, world.epoch(1) - 1, (change,)))
    assert refusal(stale.error)[0] is E.STALE_BROKER_EPOCH


def elect(world: World, type_: int, *partitions: tuple[str, int]) -> list[E]:
    results = world.do(ElectLeaders(type_, partitions or None))
    return [result.error.code for result in results]


def test_the_preferred_leader_takes_over_again() -> None:
    world = three()
    world.fence(1)
    assert elect(world, PREFERRED, ("t", 0)) == [E.PREFERRED_LEADER_NOT_AVAILABLE]
    world.beat(1)
    assert elect(world, PREFERRED, ("t", 0)) == [E.PREFERRED_LEADER_NOT_AVAILABLE]
    propose(world, world.isr_change("t", 1, 2, 3), broker=2)
    assert elect(world, PREFERRED, ("t", 0), ("nosuch", 0), ("t", 7)) == [
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (1, 2)
    assert elect(world, PREFERRED, ("t", 0)) == [E.ELECTION_NOT_NEEDED]


def test_an_election_of_all_answers_only_what_happened() -> None:
    world = three()
    world.topic("u", (2, 3))
    world.fence(1)
    world.beat(1)
    propose(world, world.isr_change("t", 1, 2, 3), broker=2)
    assert elect(world, PREFERRED) == [E.NONE]
    assert elect(world, PREFERRED) == []


def test_unclean_election_on_request_takes_any_live_replica() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    assert elect(world, UNCLEAN, ("t", 0)) == [E.ELECTION_NOT_NEEDED]
    world.fence(2, 1)
    assert elect(world, UNCLEAN, ("t", 0)) == [E.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    world.beat(2)
    assert elect(world, UNCLEAN, ("t", 0)) == [E.NONE]
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))
    assert elect(world, 7, ("t", 0)) == [E.INVALID_REQUEST]


def move(world: World, *replicas: int, cancel: bool = False) -> E:
    wish = Reassignment("t", 0, None if cancel else replicas)
    (result,) = world.do(AlterReassignments((wish,)))
    return refusal(result.error)[0] if result.error.failed else E.NONE


def test_replicas_move_when_the_new_ones_are_in_sync() -> None:
    world = World(1, 2, 3, 4)
    world.topic("t", (1, 2))
    assert move(world, 3, 4) is E.NONE
    state = world.partition("t")
    assert (state.replicas, state.adding, state.removing) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert (state.leader, state.isr) == (1, (1, 2))
    propose(world, world.isr_change("t", 1, 2, 3))
    assert world.partition("t").reassigning
    result = propose_one(world, world.isr_change("t", 1, 2, 3, 4))
    assert result.error.code is E.NEW_LEADER_ELECTED
    state = world.partition("t")
    assert (state.replicas, state.isr, state.leader) == ((3, 4), (3, 4), 3)
    assert not state.reassigning
    assert state.leader_epoch == 1


def test_a_move_can_be_cancelled() -> None:
    world = World(1, 2, 3, 4)
    world.topic("t", (1, 2))
    assert move(world, cancel=True) is E.NO_REASSIGNMENT_IN_PROGRESS
    move(world, 3, 4)
    propose(world, world.isr_change("t", 1, 2, 3))
    assert move(world, cancel=True) is E.NONE
    state = world.partition("t")
    assert (state.replicas, state.isr, state.leader) == ((1, 2), (1, 2), 1)
    assert not state.reassigning


def test_a_move_cannot_be_cancelled_when_only_new_replicas_are_in_sync() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1,))
    move(world, 2, 3)
    propose(world, world.isr_change("t", 1, 2))
    world.fence(1)
    assert move(world, cancel=True) is E.INVALID_REPLICA_ASSIGNMENT


def test_a_second_move_starts_from_the_first_replicas() -> None:
    world = World(1, 2, 3, 4)
    world.topic("t", (1, 2))
    move(world, 3, 2)
    assert move(world, 1, 4) is E.NONE
    state = world.partition("t")
    assert (state.target_replicas, state.adding, state.removing) == ((1, 4), (4,), (2,))


def test_dropping_or_reordering_replicas_is_done_at_once() -> None:
    world = three()
    assert move(world, 3, 2, 1) is E.NONE
    assert world.partition("t").replicas == (3, 2, 1)
    assert world.partition("t").leader == 1
    assert move(world, 3, 2) is E.NONE
    state = world.partition("t")
    assert (state.replicas, state.isr, state.leader) == ((3, 2), (3, 2), 3)


def test_a_removed_follower_cannot_go_on_with_the_old_leader_epoch() -> None:
    world = three()
    assert move(world, 1, 2) is E.NONE
    assert (world.partition("t").leader, world.partition("t").leader_epoch) == (1, 1)


@pytest.mark.parametrize("replicas", [(), (1, 1), (9,)])
def test_a_bad_move_is_refused(replicas: tuple[int, ...]) -> None:
    assert move(three(), *replicas) is E.INVALID_REPLICA_ASSIGNMENT


def test_moves_of_unknown_or_repeated_partitions_are_refused() -> None:
    world = three()
    wishes = (
        Reassignment("nosuch", 0, (1,)),
        Reassignment("t", 0, (1, 2)),
        Reassignment("t", 0, (1,)),
    )
    codes = [result.error.code for result in world.do(AlterReassignments(wishes))]
    assert codes == [E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE, E.INVALID_REQUEST]


def test_no_leader_is_not_a_broker_that_may_propose() -> None:
    world = World(1)
    world.topic("t", (1,))
    world.fence(1)
    assert world.partition("t").leader == NO_LEADER
    change = replace(world.isr_change("t"), isr=((1, -1),))
    assert change.topic_id == topic_id("t")
    assert refusal(propose_one(world, change).error)[0] is E.INVALID_REQUEST
