"""AlterConfigs and IncrementalAlterConfigs on topics and brokers."""

import pytest
from tests.cluster.world import World, refusal

from chronik.cluster.commands import (
    AlterConfigs,
    AlterOp,
    ConfigOp,
    Error,
    IncrementalAlterConfigs,
    ResourceConfigs,
    ResourceOps,
    SetFeature,
)
from chronik.cluster.image import ResourceType
from chronik.model.errors import ErrorCode as E

TOPIC, BROKER = int(ResourceType.TOPIC), int(ResourceType.BROKER)
SET, DELETE, APPEND, SUBTRACT = AlterOp


def alter(world: World, type_: int, name: str, *ops: tuple[str, int, str | None]) -> Error:
    request = ResourceOps(type_, name, tuple(ConfigOp(*op) for op in ops))
    (result,) = world.do(IncrementalAlterConfigs((request,)))
    assert (result.resource_type, result.name) == (type_, name)
    return result.error


def world_with_topic() -> World:
    world = World(1, 2)
    world.topic("t", (1, 2))
    return world


def test_keys_are_set_and_deleted() -> None:
    world = world_with_topic()
    assert not alter(world, TOPIC, "t", ("retention.ms", SET, "5")).failed
    assert world.image.topic_overrides("t") == {"retention.ms": "5"}
    assert not alter(
        world, TOPIC, "t", ("retention.ms", DELETE, None), ("segment.ms", SET, "9")
    ).failed
    assert world.image.topic_overrides("t") == {"segment.ms": "9"}


def test_lists_grow_from_their_default_and_shrink() -> None:
    world = world_with_topic()
    for op, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "foo", "compact"),
        (SUBTRACT, "compact", ""),
    ):
        assert not alter(world, TOPIC, "t", ("cleanup.policy", op, value)).failed
        assert world.image.topic_overrides("t") == {"cleanup.policy": expected}


def test_setting_what_is_set_writes_nothing() -> None:
    world = world_with_topic()
    alter(world, TOPIC, "t", ("retention.ms", SET, "5"))
    before = len(world.log)
    assert not alter(world, TOPIC, "t", ("retention.ms", SET, "5")).failed
    assert len(world.log) == before


# Codes and texts are Apache Kafka 4.3.1's, except that it takes unknown broker keys.
@pytest.mark.parametrize(
    ("type_", "name", "op", "code", "text"),
    [
        (TOPIC, "t", ("retention.ms", APPEND, "5"), E.INVALID_CONFIG, "its type is not LIST"),
        (TOPIC, "t", ("nosuch", APPEND, "5"), E.INVALID_CONFIG, "its type is not LIST"),
        (TOPIC, "t", ("nosuch", SET, "5"), E.INVALID_CONFIG, "Unknown topic config name: nosuch"),
        (TOPIC, "t", ("retention.ms", SET, "xx"), E.INVALID_CONFIG, "Not a number of type LONG"),
        (TOPIC, "t", ("retention.ms", SET, None), E.INVALID_REQUEST, "Null value not supported"),
        (TOPIC, "t", ("cleanup.policy", APPEND, "x"), E.INVALID_CONFIG, "String must be one of"),
        (TOPIC, "t", ("retention.ms", 9, "1"), E.INVALID_REQUEST, "Unknown operation type 9"),
        (TOPIC, "no", ("retention.ms", SET, "5"), E.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (TOPIC, "a/b", ("retention.ms", SET, "5"), E.INVALID_TOPIC_EXCEPTION, "other than ASCII"),
        (BROKER, "1", ("num.partitions", SET, "5"), E.INVALID_REQUEST, "update these configs dyn"),
        (BROKER, "1", ("nosuch", SET, "5"), E.INVALID_REQUEST, "Unknown broker config name"),
        (BROKER, "1", ("log.retention.ms", SET, "xx"), E.INVALID_REQUEST, "Not a number"),
        (BROKER, "7", ("log.retention.ms", SET, "5"), E.INVALID_REQUEST, "No broker '7'"),
        (BROKER, "x", ("log.retention.ms", SET, "5"), E.INVALID_REQUEST, "No broker 'x'"),
        (BROKER, "²", ("log.retention.ms", SET, "5"), E.INVALID_REQUEST, "No broker"),
        (8, "1", ("a", SET, "5"), E.INVALID_REQUEST, "resource type 8 is not supported"),
        (32, "g", ("a", SET, "5"), E.INVALID_REQUEST, "resource type 32 is not supported"),
    ],
)
def test_fm80_a_bad_change_is_refused(
    type_: int, name: str, op: tuple[str, int, str | None], code: E, text: str
) -> None:
    world = world_with_topic()
    before = world.image
    got, message = refusal(alter(world, type_, name, op))
    assert (got, text in message) == (code, True), message
    assert world.image == before


def test_a_resource_changes_wholly_or_not_at_all() -> None:
    world = world_with_topic()
    error = alter(world, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.bytes", SET, "1"))
    assert error.code is E.INVALID_CONFIG
    assert world.image.topic_overrides("t") == {}


def test_what_is_there_already_counts_in_the_check() -> None:
    world = world_with_topic()
    alter(world, TOPIC, "t", ("max.compaction.lag.ms", SET, "5"))
    code, message = refusal(alter(world, TOPIC, "t", ("min.compaction.lag.ms", SET, "10")))
    assert code is E.INVALID_CONFIG
    assert "conflict topic config setting" in message


def test_duplicates_are_refused() -> None:
    world = world_with_topic()
    error = alter(world, TOPIC, "t", ("retention.ms", SET, "5"), ("retention.ms", SET, "6"))
    assert refusal(error)[0] is E.INVALID_REQUEST
    one = ResourceOps(TOPIC, "t", (ConfigOp("retention.ms", SET, "5"),))
    results = world.do(IncrementalAlterConfigs((one, one)))
    assert [refusal(result.error)[0] for result in results] == [E.INVALID_REQUEST] * 2
    assert world.image.topic_overrides("t") == {}


def test_broker_values_are_kept_per_broker_and_for_all() -> None:
    world = world_with_topic()
    assert not alter(world, BROKER, "1", ("log.retention.ms", SET, "5")).failed
    assert not alter(world, BROKER, "", ("log.retention.ms", SET, "6")).failed
    layers = world.image.layers(1, {})
    assert (layers.dynamic, layers.dynamic_default) == (
        {"log.retention.ms": "5"},
        {"log.retention.ms": "6"},
    )
    assert world.image.layers(2, {}).dynamic == {}
    assert not alter(world, BROKER, "1", ("log.retention.ms", DELETE, None)).failed
    assert world.image.layers(1, {}).dynamic == {}


def test_the_older_form_replaces_everything() -> None:
    world = world_with_topic()
    alter(world, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "9"))
    request = ResourceConfigs(TOPIC, "t", (("segment.ms", "9"), ("flush.ms", "1")))
    (result,) = world.do(AlterConfigs((request,)))
    assert not result.error.failed
    assert world.image.topic_overrides("t") == {"segment.ms": "9", "flush.ms": "1"}
    (result,) = world.do(AlterConfigs((ResourceConfigs(TOPIC, "t", ()),)))
    assert not result.error.failed
    assert world.image.topic_overrides("t") == {}


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ((("retention.ms", "xx"),), E.INVALID_CONFIG),
        ((("retention.ms", None),), E.INVALID_REQUEST),
        ((("retention.ms", "1"), ("retention.ms", "2")), E.INVALID_REQUEST),
    ],
)
def test_the_older_form_refuses_the_same(
    configs: tuple[tuple[str, str | None], ...], code: E
) -> None:
    world = world_with_topic()
    (result,) = world.do(AlterConfigs((ResourceConfigs(TOPIC, "t", configs),)))
    assert refusal(result.error)[0] is code


def test_validate_only_changes_nothing() -> None:
    world = world_with_topic()
    before = world.image
    good = ResourceOps(TOPIC, "t", (ConfigOp("retention.ms", SET, "5"),))
    bad = ResourceOps(BROKER, "1", (ConfigOp("nosuch", SET, "5"),))
    first, second = world.do(IncrementalAlterConfigs((good, bad), validate_only=True))
    assert not first.error.failed
    assert second.error.failed
    assert world.image == before


def test_features_have_a_level() -> None:
    world = World()
    assert not world.do(SetFeature("f", 2)).failed
    assert world.image.features == {"f": 2}
    assert not world.do(SetFeature("f", 0)).failed
    assert world.image.features == {}
    assert world.do(SetFeature("f", -1)).code is E.INVALID_REQUEST


@pytest.mark.parametrize(("type_", "name"), [(TOPIC, "t"), (BROKER, "")])
def test_switching_unclean_election_on_elects_at_once(type_: int, name: str) -> None:
    world = world_with_topic()
    world.fence(2, 1)
    world.beat(2)
    assert world.partition("t").leader == -1
    assert not alter(world, type_, name, ("unclean.leader.election.enable", SET, "true")).failed
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))
