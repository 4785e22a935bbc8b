"""Creating, growing and deleting topics: what is accepted, and Kafka's answer to the rest."""

from dataclasses import replace

import pytest
from tests.cluster.world import World, refusal, topic_id

from chronik.cluster.commands import (
    ControllerSettings,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
    TopicRef,
)
from chronik.cluster.image import PartitionState
from chronik.model.errors import ErrorCode as E

Rows = tuple[tuple[int, tuple[int, ...]], ...]


def new(
    name: str, partitions: int = -1, factor: int = -1, rows: Rows = (), **configs: str | None
) -> NewTopic:
    pairs = tuple((key.replace("_", "."), value) for key, value in configs.items())
    return NewTopic(name, topic_id(name), partitions, factor, rows, pairs)


def two_brokers() -> World:
    world = World(1, 2)
    world.topic("old", (1, 2))
    world.topic("t.a", (1,))
    return world


# The texts are Apache Kafka 4.3.1's.
REFUSED = [
    (
        replace(new("old", 1, 1), topic_id=b"another id......"),
        E.TOPIC_ALREADY_EXISTS,
        "Topic 'old' already exists.",
    ),
    (new("."), E.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
    (new(".."), E.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
    (new(""), E.INVALID_TOPIC_EXCEPTION, "the empty string is not allowed"),
    (new("x" * 250), E.INVALID_TOPIC_EXCEPTION, "longer than the max allowed length 249"),
    (new("../etc"), E.INVALID_TOPIC_EXCEPTION, "characters other than ASCII alphanumerics"),
    (new("t_a"), E.INVALID_TOPIC_EXCEPTION, "Topic 't_a' collides with existing topic: t.a"),
    (new("__cluster_metadata"), E.INVALID_REQUEST, "Creation of internal topic"),
    (new("p", 0, 1), E.INVALID_PARTITIONS, "invalid non-positive value."),
    (new("p", -2, 1), E.INVALID_PARTITIONS, "invalid non-positive value."),
    (new("p", 20_000, 1), E.POLICY_VIOLATION, "Excessively large number of partitions per request"),
    (new("p", 2**31 - 1, 1), E.POLICY_VIOLATION, "Excessively large number"),
    (new("p", 1, 0), E.INVALID_REPLICATION_FACTOR, "must be larger than 0, or -1"),
    (new("p", 1, -2), E.INVALID_REPLICATION_FACTOR, "must be larger than 0, or -1"),
    (new("p", 1, 3), E.INVALID_REPLICATION_FACTOR, "because only 2 broker(s)"),
    (
        new("p", rows=((0, (9,)),)),
        E.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    ),
    (new("p", rows=((0, (1, 1)),)), E.INVALID_REPLICA_ASSIGNMENT, "the broker 1 more than once."),
    (new("p", rows=((0, ()),)), E.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
    (new("p", rows=((1, (1,)),)), E.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based"),
    (new("p", rows=((0, (1,)), (0, (2,)))), E.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based"),
    (
        new("p", rows=((0, (1,)), (1, (1, 2)))),
        E.INVALID_REPLICA_ASSIGNMENT,
        "with 2 replica(s), but this is not consistent with previous partitions, which have 1",
    ),
    (new("p", 1, rows=((0, (1,)),)), E.INVALID_REQUEST, "but numPartitions was not set to -1."),
    (new("p", -1, 1, rows=((0, (1,)),)), E.INVALID_REQUEST, "but replication factor was not set"),
    (new("p", retention_ms="-5"), E.INVALID_CONFIG, "Value must be at least -1"),
    (new("p", retention_ms=None), E.INVALID_CONFIG, "Null value not supported for : retention.ms"),
    (new("p", nosuch="1"), E.INVALID_CONFIG, "Unknown topic config name: nosuch"),
    (new("p", preallocate="true"), E.INVALID_CONFIG, "only 'false' is supported"),
    (NewTopic("p", bytes(16)), E.UNKNOWN_SERVER_ERROR, "is not a new one; try again."),
    (NewTopic("p", topic_id("old")), E.UNKNOWN_SERVER_ERROR, "is not a new one; try again."),
]


@pytest.mark.parametrize(("topic", "code", "text"), REFUSED)
def test_fm04_a_bad_topic_is_refused_with_code_and_text(
    topic: NewTopic, code: E, text: str
) -> None:
    world = two_brokers()
    before = world.image
    got, message = refusal(world.create(topic).error)
    assert got is code
    assert text in message
    assert world.image == before


def test_defaults_come_from_the_controller() -> None:
    settings = ControllerSettings(num_partitions=4, default_replication_factor=2)
    world = World(1, 2, 3, settings=settings)
    result = world.create(new("t", retention_ms="5"))
    assert (result.partitions, result.replication_factor) == (4, 2)
    assert result.configs == {"retention.ms": "5"}
    assert world.image.topic_overrides("t") == {"retention.ms": "5"}
    assert len(world.image.topics["t"].partitions) == 4
    assert world.image.topic_by_id(result.topic_id) is world.image.topics["t"]


def test_fm33_only_live_brokers_get_replicas() -> None:
    world = World(1, 2, 3, 4)
    world.fence(2)
    world.register(5)
    world.create(new("t", 20, 3))
    used = {one for state in world.image.topics["t"].partitions for one in state.replicas}
    assert used == {1, 3, 4}
    assert refusal(world.create(new("u", 1, 4)).error)[0] is E.INVALID_REPLICATION_FACTOR


def test_fm33_a_cluster_without_brokers_refuses() -> None:
    world = World()
    code, message = refusal(world.create(new("t", 1, 1)).error)
    assert code is E.INVALID_REPLICATION_FACTOR
    assert "only 0 broker(s)" in message


def test_fenced_brokers_can_be_allowed_as_in_kafka_but_never_lead() -> None:
    world = World(1, 2, 3, settings=ControllerSettings(place_on_fenced=True))
    world.fence(2)
    assert not world.create(new("t", 6, 3)).error.failed
    for state in world.image.topics["t"].partitions:
        assert sorted(state.replicas) == [1, 2, 3]
        assert 2 not in state.isr
        assert state.leader in {1, 3}


def test_a_manual_assignment_is_kept_and_its_first_live_replica_leads() -> None:
    world = World(1, 2, 3)
    world.fence(2)
    world.topic("t", (2, 3), (1, 2))
    assert world.partition("t", 0) == PartitionState((2, 3), (3,), 3)
    assert world.partition("t", 1) == PartitionState((1, 2), (1,), 1)
    code, message = refusal(world.create(new("u", rows=((0, (2,)),))).error)
    assert code is E.INVALID_REPLICA_ASSIGNMENT
    assert "are fenced or in controlled shutdown" in message


def test_one_bad_topic_does_not_harm_the_others() -> None:
    world = two_brokers()
    results = world.do(CreateTopics((new("a", 1, 1), new("bad/", 1, 1), new("b", 2, 2))))
    assert [result.error.code for result in results] == [E.NONE, E.INVALID_TOPIC_EXCEPTION, E.NONE]
    assert {"a", "b"} <= set(world.image.topics)


def test_a_name_given_twice_is_refused() -> None:
    world = two_brokers()
    results = world.do(CreateTopics((new("a", 1, 1), new("a", 2, 1), new("b", 1, 1))))
    assert [(one.name, one.error.code) for one in results] == [
        ("a", E.INVALID_REQUEST),
        ("b", E.NONE),
    ]
    assert "a" not in world.image.topics


def test_topics_of_one_request_collide_like_others() -> None:
    world = World(1)
    first, second = world.do(CreateTopics((new("x.y", 1, 1), new("x_y", 1, 1))))
    assert not first.error.failed
    assert second.error.code is E.INVALID_TOPIC_EXCEPTION


def test_validate_only_changes_nothing() -> None:
    world = two_brokers()
    before = world.image
    good, bad = world.do(CreateTopics((new("a", 2, 2), new("b", 0, 1)), validate_only=True))
    assert (good.partitions, good.error.code) == (2, E.NONE)
    assert bad.error.code is E.INVALID_PARTITIONS
    assert world.image == before


def test_fm34_many_topics_with_many_counts_are_created_in_full() -> None:
    world = World(1, 2, 3)
    wanted = {f"t{count}": count for count in range(1, 101)}
    topics = tuple(new(name, count, 1 + count % 3) for name, count in wanted.items())
    results = world.do(CreateTopics(topics, start_index=7))
    assert [result.partitions for result in results] == list(wanted.values())
    assert {name: len(topic.partitions) for name, topic in world.image.topics.items()} == wanted


def test_small_topics_of_one_request_are_led_by_different_brokers() -> None:
    world = World(1, 2, 3)
    world.do(CreateTopics(tuple(new(f"t{i}", 1, 2) for i in range(9)), start_index=2))
    leaders = [topic.partitions[0].leader for topic in world.image.topics.values()]
    assert {leader: leaders.count(leader) for leader in leaders} == {1: 3, 2: 3, 3: 3}


def test_the_limit_counts_the_whole_request() -> None:
    world = World(1, settings=ControllerSettings(partitions_per_request_max=10))
    results = world.do(CreateTopics((new("a", 6, 1), new("b", 6, 1), new("c", 4, 1))))
    assert [one.error.code for one in results] == [E.NONE, E.POLICY_VIOLATION, E.NONE]


def grow(world: World, name: str, count: int, rows: tuple[tuple[int, ...], ...] | None = None) -> E:
    (result,) = world.do(CreatePartitions((NewPartitions(name, count, rows),), start_index=1))
    return result.error.code if not result.error.failed else refusal(result.error)[0]


def test_partitions_are_added_and_the_old_ones_stay() -> None:
    world = two_brokers()
    before = world.partition("old")
    assert grow(world, "old", 3) is E.NONE
    assert len(world.image.topics["old"].partitions) == 3
    assert world.partition("old") == before
    assert all(len(one.replicas) == 2 for one in world.image.topics["old"].partitions)
    assert grow(world, "old", 4, ((2, 1),)) is E.NONE
    assert world.partition("old", 3) == PartitionState((2, 1), (2, 1), 2)


@pytest.mark.parametrize(
    ("wish", "code", "text"),
    [
        (NewPartitions("old", 1), E.INVALID_PARTITIONS, "Topic already has 1 partition(s)."),
        (
            NewPartitions("old", 0),
            E.INVALID_PARTITIONS,
            "The topic old currently has 1 partition(s); 0 would not be an increase.",
        ),
        (NewPartitions("nosuch", 3), E.UNKNOWN_TOPIC_OR_PARTITION, "does not host"),
        (NewPartitions("old", 20_000), E.POLICY_VIOLATION, "Excessively large"),
        (
            NewPartitions("old", 3, ((1, 2),)),
            E.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (NewPartitions("old", 2, ((1, 7),)), E.INVALID_REPLICA_ASSIGNMENT, "includes broker 7"),
        (NewPartitions("old", 2, ((1,),)), E.INVALID_REPLICA_ASSIGNMENT, "not consistent"),
    ],
)
def test_a_bad_growth_is_refused(wish: NewPartitions, code: E, text: str) -> None:
    world = two_brokers()
    before = world.image
    (result,) = world.do(CreatePartitions((wish,)))
    got, message = refusal(result.error)
    assert (got, text in message) == (code, True), message
    assert world.image == before


def test_growing_twice_in_one_request_is_refused_and_validate_only_changes_nothing() -> None:
    world = two_brokers()
    before = world.image
    twice = (NewPartitions("old", 2), NewPartitions("old", 3))
    assert {one.error.code for one in world.do(CreatePartitions(twice))} == {E.INVALID_REQUEST}
    (fine,) = world.do(CreatePartitions((NewPartitions("old", 2),), validate_only=True))
    assert not fine.error.failed
    assert world.image == before


def test_topics_are_deleted_by_name_or_id_with_their_configuration() -> None:
    world = World(1)
    world.topic("a", (1,), retention_ms="5")
    world.topic("b", (1,))
    by_name, by_id = world.do(DeleteTopics((TopicRef("a"), TopicRef(None, topic_id("b")))))
    assert (by_name.name, by_name.topic_id) == ("a", topic_id("a"))
    assert (by_id.name, by_id.topic_id) == ("b", topic_id("b"))
    assert not world.image.topics
    assert not world.image.configs


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        (TopicRef("nosuch"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicRef("a/b"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicRef(None, b"\x07" * 16), E.UNKNOWN_TOPIC_ID),
        (TopicRef(), E.INVALID_REQUEST),
        (TopicRef("old", topic_id("old")), E.INVALID_REQUEST),
    ],
)
def test_a_bad_deletion_is_refused(ref: TopicRef, code: E) -> None:
    world = two_brokers()
    (result,) = world.do(DeleteTopics((ref,)))
    assert refusal(result.error)[0] is code
    assert "old" in world.image.topics


def test_a_topic_deleted_twice_in_one_request_is_refused() -> None:
    world = two_brokers()
    results = world.do(DeleteTopics((TopicRef("old"), TopicRef(None, topic_id("old")))))
    assert [refusal(one.error)[0] for one in results] == [E.INVALID_REQUEST] * 2


def test_deletion_can_be_disabled() -> None:
    world = World(1, settings=ControllerSettings(delete_topic_enable=False))
    world.topic("a", (1,))
    (result,) = world.do(DeleteTopics((TopicRef("a"),)))
    assert refusal(result.error)[0] is E.TOPIC_DELETION_DISABLED


def test_fm48_the_same_creation_again_is_answered_as_the_first_time() -> None:
    """A node repeats a command of which it does not know the fate."""
    world = two_brokers()
    first = world.create(new("new", 3, 2))
    before = world.image
    assert world.create(new("new", 3, 2)) == first
    assert world.image == before
