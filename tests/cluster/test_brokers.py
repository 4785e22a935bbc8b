"""A broker's life: registration, heartbeats, fencing, elections, shutdown, producer ids."""

import pytest
from tests.cluster.world import World, refusal

from chronik.cluster.commands import (
    AllocateProducerIds,
    BrokerHeartbeat,
    ControllerSettings,
    CreateCluster,
    FenceBroker,
    ProducerIds,
    RegisterBroker,
    UnregisterBroker,
)
from chronik.cluster.image import NO_LEADER, Endpoint
from chronik.model.errors import ErrorCode as E

HOME = (Endpoint("PLAINTEXT", "host", 9092),)
ONE, TWO = b"\x01" * 16, b"\x02" * 16


def test_a_cluster_keeps_its_id() -> None:
    world = World()
    assert not world.do(CreateCluster("abc")).failed
    assert not world.do(CreateCluster("abc")).failed
    assert refusal(world.do(CreateCluster("def")))[0] is E.INCONSISTENT_CLUSTER_ID
    assert world.image.cluster_id == "abc"


def test_a_broker_is_fenced_until_it_has_caught_up() -> None:
    world = World()
    epoch = world.register(1)
    assert not world.image.is_live(1)
    late = world.do(BrokerHeartbeat(1, epoch, caught_up=False))
    assert (late.fenced, late.caught_up) == (True, False)
    assert not world.do(BrokerHeartbeat(1, epoch)).fenced
    assert world.image.is_live(1)


def test_every_process_gets_a_higher_epoch_and_the_same_process_keeps_its_own() -> None:
    world = World()
    first = world.do(RegisterBroker(1, ONE, HOME)).epoch
    written = len(world.log)
    assert world.do(RegisterBroker(1, ONE, HOME)).epoch == first
    assert len(world.log) == written
    second = world.do(RegisterBroker(1, TWO, HOME)).epoch
    assert second > first
    world.do(UnregisterBroker(1))
    assert world.do(RegisterBroker(1, ONE, HOME)).epoch > second


def test_a_second_node_with_the_id_of_a_live_one_is_refused() -> None:
    world = World()
    world.do(RegisterBroker(1, ONE, HOME))
    result = world.do(RegisterBroker(1, TWO, HOME, session_valid=True))
    code, message = refusal(result.error)
    assert code is E.DUPLICATE_BROKER_REGISTRATION
    assert "change node.id" in message


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (RegisterBroker(1, ONE, HOME, cluster_id="other"), E.INCONSISTENT_CLUSTER_ID),
        (RegisterBroker(-1, ONE, HOME), E.INVALID_REGISTRATION),
        (RegisterBroker(1, ONE, ()), E.INVALID_REGISTRATION),
        (RegisterBroker(1, ONE, HOME + HOME), E.INVALID_REGISTRATION),
        (RegisterBroker(1, ONE, (Endpoint("P", "0.0.0.0", 9092),)), E.INVALID_REGISTRATION),
        (RegisterBroker(1, ONE, (Endpoint("P", "::", 9092),)), E.INVALID_REGISTRATION),
        (RegisterBroker(1, ONE, (Endpoint("P", "host", 0),)), E.INVALID_REGISTRATION),
    ],
)
def test_fm14_a_bad_registration_is_refused(command: RegisterBroker, code: E) -> None:
    world = World()
    world.do(CreateCluster("abc"))
    assert refusal(world.do(command).error)[0] is code
    assert not world.image.brokers


def test_a_crashed_process_that_comes_back_leads_again_with_a_higher_epoch() -> None:
    world = World(1)
    world.topic("t", (1,))
    epoch = world.register(1)
    assert world.partition("t").leader == NO_LEADER
    assert world.partition("t").isr == (1,)
    world.do(BrokerHeartbeat(1, epoch))
    assert world.partition("t").leader == 1
    assert world.partition("t").leader_epoch == 2


@pytest.mark.parametrize("min_insync", [1, 2, 3])
@pytest.mark.parametrize("was_fenced", [False, True])
@pytest.mark.parametrize("dead", [(), (2,), (2, 3)])
def test_a_new_process_never_leads_in_an_epoch_that_the_old_one_led(
    min_insync: int, was_fenced: bool, dead: tuple[int, ...]
) -> None:
    """Followers may have what it had not synced: its epoch must not get anything else there."""
    world = World(1, 2, 3)
    world.topic("t", (1, 2, 3), min_insync_replicas=str(min_insync))
    world.topic("alone", (1,))
    world.fence(*dead)
    before = {name: world.partition(name) for name in ("t", "alone")}
    assert all(one.leader == 1 for one in before.values())
    if was_fenced:
        world.fence(1)
    world.register(1)
    assert all(world.partition(name).leader != 1 for name in before)
    world.beat(1)
    assert all(
        world.partition(name).leader_epoch > one.leader_epoch for name, one in before.items()
    )


@pytest.mark.parametrize(
    ("broker", "epoch", "code"), [(9, 1, E.BROKER_ID_NOT_REGISTERED), (1, 0, E.STALE_BROKER_EPOCH)]
)
def test_an_older_process_is_answered_with_an_error(broker: int, epoch: int, code: E) -> None:
    world = World(1)
    assert refusal(world.do(BrokerHeartbeat(broker, epoch)).error)[0] is code
    assert refusal(world.do(AllocateProducerIds(broker, epoch)).error)[0] is code


def test_a_fenced_leader_is_replaced_from_the_isr() -> None:
    world = World(1, 2, 3)
    world.topic("t", (1, 2, 3))
    world.fence(1)
    state = world.partition("t")
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2, 3), 1)
    world.beat(1)
    assert world.partition("t") == state, "it must catch up before it is in sync again"


def test_a_fenced_follower_leaves_the_isr_and_the_leader_epoch_stays() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    world.fence(2)
    state = world.partition("t")
    assert (state.leader, state.isr, state.leader_epoch, state.partition_epoch) == (1, (1,), 0, 1)


@pytest.mark.parametrize(("first", "last"), [(1, 2), (2, 1)])
def test_the_last_in_sync_replica_stays_in_the_isr_and_only_it_may_lead_again(
    first: int, last: int
) -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    world.fence(first, last)
    assert world.partition("t").leader == NO_LEADER
    assert world.partition("t").isr == (last,)
    epoch = world.partition("t").leader_epoch
    world.beat(first)
    assert world.partition("t").leader == NO_LEADER
    world.beat(last)
    assert world.partition("t").leader == last
    assert world.partition("t").leader_epoch == epoch + 1


@pytest.mark.parametrize("where", ["topic", "static"])
def test_unclean_election_only_where_a_topic_or_the_cluster_says_so(where: str) -> None:
    key = {"unclean.leader.election.enable": "true"}
    settings = ControllerSettings(static_configs=key if where == "static" else {})
    world = World(1, 2, settings=settings)
    if where == "topic":
        world.topic("t", (1, 2), unclean_leader_election_enable="true")
    else:
        world.topic("t", (1, 2))
    world.topic("safe", (1, 2), unclean_leader_election_enable="false")
    world.fence(2, 1)
    world.beat(2)
    assert world.partition("t").leader == 2
    assert world.partition("t").isr == (2,)
    assert world.partition("safe").leader == NO_LEADER
    assert world.partition("safe").isr == (1,)


def test_a_broker_may_ask_to_be_fenced() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    assert world.do(BrokerHeartbeat(1, world.epoch(1), want_fence=True)).fenced
    assert world.partition("t").leader == 2


def test_fencing_is_for_one_registration_and_repeats_without_effect() -> None:
    world = World(1)
    assert not world.do(FenceBroker(1, world.epoch(1) - 1)).failed
    assert world.image.is_live(1)
    assert not world.do(FenceBroker(1, world.epoch(1))).failed
    written = len(world.log)
    assert not world.do(FenceBroker(1)).failed
    assert len(world.log) == written
    assert refusal(world.do(FenceBroker(9)))[0] is E.BROKER_ID_NOT_REGISTERED


def test_a_stopping_broker_hands_over_before_it_goes() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2))
    epoch = world.epoch(1)
    first = world.do(BrokerHeartbeat(1, epoch, want_shutdown=True))
    assert (first.should_shut_down, first.fenced) == (False, False)
    assert world.partition("t").leader == 2
    assert world.partition("t").isr == (2,)
    assert not world.image.is_live(1)
    second = world.do(BrokerHeartbeat(1, epoch, want_shutdown=True))
    assert second.should_shut_down
    assert world.image.brokers[1].fenced
    third = world.do(BrokerHeartbeat(1, epoch, want_shutdown=True))
    assert third.should_shut_down
    world.join(1)
    assert world.image.is_live(1)


def test_an_unregistered_broker_leads_nothing_and_its_settings_go() -> None:
    world = World(1, 2)
    world.topic("t", (1, 2), (2, 1))
    assert not world.do(UnregisterBroker(1)).failed
    assert set(world.image.brokers) == {2}
    assert [one.leader for one in world.image.topics["t"].partitions] == [2, 2]
    assert refusal(world.do(UnregisterBroker(1)))[0] is E.BROKER_ID_NOT_REGISTERED


def test_fm74_producer_ids_are_never_given_twice() -> None:
    world = World(1, 2)
    given: list[ProducerIds] = []
    for broker in (1, 2, 1, 1, 2):
        given.append(world.do(AllocateProducerIds(broker, world.epoch(broker))))
        world.join(broker)
    ids = [one for block in given for one in range(block.start, block.start + block.length)]
    assert all(block.length == 1000 for block in given)
    assert len(set(ids)) == len(ids) == 5000
