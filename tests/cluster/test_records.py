"""Records and their bytes, the image they make, snapshots."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.world import World, topic_id

from chronik.cluster import records as r
from chronik.cluster.apply import apply, restore, snapshot
from chronik.cluster.commands import CreateTopics, DeleteTopics, NewTopic, SetFeature, TopicRef
from chronik.cluster.image import (
    EMPTY,
    Endpoint,
    PartitionState,
    Resource,
    ResourceType,
    check_invariants,
)

IDS = st.binary(min_size=16, max_size=16)
NUMBERS = st.integers(min_value=-1, max_value=2**63 - 1)
BROKERS = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
TEXTS = st.text(max_size=20)
STATES = st.builds(PartitionState, BROKERS, BROKERS, NUMBERS, NUMBERS, NUMBERS, BROKERS, BROKERS)
ENDPOINTS = st.lists(st.builds(Endpoint, TEXTS, TEXTS, st.integers(0, 65535)), max_size=3)
RESOURCES = st.builds(Resource, st.sampled_from(ResourceType), TEXTS)
RECORDS = st.one_of(
    st.builds(r.ClusterCreated, TEXTS),
    st.builds(
        r.BrokerRegistered,
        NUMBERS,
        NUMBERS,
        IDS,
        ENDPOINTS.map(tuple),
        st.none() | TEXTS,
        st.booleans(),
        st.booleans(),
    ),
    st.builds(r.BrokerFenced, NUMBERS, NUMBERS),
    st.builds(r.BrokerUnfenced, NUMBERS, NUMBERS),
    st.builds(r.BrokerShuttingDown, NUMBERS, NUMBERS),
    st.builds(r.BrokerUnregistered, NUMBERS, NUMBERS),
    st.builds(r.BrokerEpochsUsed, NUMBERS),
    st.builds(r.TopicCreated, IDS, TEXTS),
    st.builds(r.PartitionCreated, IDS, NUMBERS, STATES),
    st.builds(r.PartitionChanged, IDS, NUMBERS, STATES),
    st.builds(r.TopicDeleted, IDS),
    st.builds(r.ConfigChanged, RESOURCES, TEXTS, st.none() | TEXTS),
    st.builds(r.ProducerIdsAllocated, NUMBERS, NUMBERS, NUMBERS),
    st.builds(r.FeatureLevel, TEXTS, NUMBERS),
)


@given(RECORDS)
def test_a_record_survives_its_bytes(record: r.Record) -> None:
    assert r.decode(r.encode(record)) == record


@given(st.lists(RECORDS, max_size=5))
def test_several_records_survive_their_bytes(records: list[r.Record]) -> None:
    assert r.decode_all(r.encode_all(records)) == records


@given(st.binary(max_size=40))
def test_any_bytes_are_a_record_or_a_clear_error(data: bytes) -> None:
    try:
        r.decode(data)
        r.decode_all(data)
    except r.RecordError as error:
        message = str(error)
        assert message


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "at least 2 bytes"),
        (b"\xfe\x00[]", "type 254 is unknown"),
        (b"\x01\x07[]", "ClusterCreated record has version 7, this node reads 0: upgrade"),
        (b"\x01\x00[", "ClusterCreated record is damaged"),
        (b"\x0b\x00[5]", "TopicDeleted record is damaged"),
        (b"\x0c\x00[3,1,2,3]", "ConfigChanged record is damaged"),
    ],
)
def test_what_is_not_understood_is_an_error(data: bytes, complaint: str) -> None:
    with pytest.raises(r.RecordError, match=complaint):
        r.decode(data)


def test_a_cut_batch_is_an_error() -> None:
    data = r.encode_all([r.FeatureLevel("f", 1)])
    for size in range(1, len(data)):
        with pytest.raises(r.RecordError, match="end in the middle"):
            r.decode_all(data[:size])


def test_the_bytes_of_a_record_do_not_change() -> None:
    state = PartitionState((1, 2), (2,), 2, 3, 4, (1,), ())
    assert r.encode(r.PartitionChanged(bytes(15) + b"\x0f", 7, state)) == (
        b'\x0a\x00["0000000000000000000000000000000f",7,[1,2],[2],2,3,4,[1],[]]'
    )


def busy_world() -> World:
    world = World(1, 2, 3)
    world.topic("a", (1, 2, 3), (2, 3, 1), retention_ms="1000")
    world.topic("gone", (1, 2))
    world.do(SetFeature("metadata.version", 3))
    world.do(DeleteTopics((TopicRef("gone"),)))
    world.fence(1)
    return world


def test_a_snapshot_makes_the_same_image() -> None:
    image = busy_world().image
    again = restore(r.decode_all(r.encode_all(snapshot(image))), image.version)
    assert again == image


def test_one_batch_and_record_by_record_give_the_same_image() -> None:
    world = busy_world()
    one_by_one = EMPTY
    for record in world.log:
        one_by_one = apply(one_by_one, [record])
    assert one_by_one == apply(EMPTY, world.log) == world.image


def test_an_image_never_changes_after_it_was_made() -> None:
    world = busy_world()
    before = world.image
    copy = replace(
        before,
        topics=dict(before.topics),
        brokers=dict(before.brokers),
        configs={key: dict(value) for key, value in before.configs.items()},
        topic_names=dict(before.topic_names),
    )
    world.topic("b", (2,), retention_ms="1")
    world.do(DeleteTopics((TopicRef("a"),)))
    world.fence(2, 3)
    assert before == copy


def test_what_did_not_change_is_shared() -> None:
    world = busy_world()
    before = world.image
    world.do(SetFeature("metadata.version", 4))
    assert world.image.topics is before.topics
    assert world.image.configs is before.configs
    world.topic("b", (2,))
    assert world.image.topic_overrides("a") is before.topic_overrides("a")
    assert world.image.topics["a"] is before.topics["a"]


def test_a_topic_deleted_and_created_again_in_one_batch_is_new() -> None:
    world = busy_world()
    state = PartitionState((2,), (2,), 2)
    image = apply(
        world.image,
        [
            r.TopicDeleted(topic_id("a")),
            r.TopicCreated(topic_id("again"), "a"),
            r.PartitionCreated(topic_id("again"), 0, state),
        ],
    )
    check_invariants(image)
    assert image.topics["a"].partitions == (state,)
    assert image.topic_overrides("a") == {}


def test_fm38_thousands_of_topics_give_the_same_catalogue_by_replay_and_by_snapshot() -> None:
    world = World(1, 2, 3)
    topics = tuple(NewTopic(f"topic-{i}", topic_id(f"{i:016}"), 3, 3) for i in range(3_000))
    results = world.do(CreateTopics(topics))
    assert not any(result.error.failed for result in results)
    replayed = apply(EMPTY, r.decode_all(r.encode_all(world.log)))
    assert replayed == world.image
    assert restore(snapshot(world.image), world.image.version) == world.image
    assert len(replayed.topics) == 3_000
