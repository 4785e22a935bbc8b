"""Committed offsets on the wire, version by version; try `--server kafka` too."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.clients.asking import metadata
from tests.handlers.group_kit import (
    NONE,
    NewConnection,
    commit,
    committed,
    stable,
    wait_for_coordinator,
)


@pytest.mark.parametrize("version", range(2, 10))
def test_fm10_offsets_come_back_whatever_the_version(
    connect: NewConnection, group: str, topic: str, version: int
) -> None:
    connection = connect()
    assert commit(connection, group, {topic: {0: 5, 1: 6}}, version) == {
        (topic, 0): NONE,
        (topic, 1): NONE,
    }
    assert committed(connection, group) == {(topic, 0): (5, "note"), (topic, 1): (6, "note")}


def test_partitions_that_do_not_exist_are_refused_and_the_others_stored(
    connect: NewConnection, group: str, topic: str
) -> None:
    connection = connect()
    unknown = ErrorCode.unknown_topic_or_partition
    assert commit(connection, group, {topic: {0: 5, 9: 6, -1: 1}, "nowhere": {0: 1}}) == {
        (topic, 0): NONE,
        (topic, 9): unknown,
        (topic, -1): unknown,
        ("nowhere", 0): unknown,
    }
    assert committed(connection, group) == {(topic, 0): (5, "note")}


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.group_id_not_found)]
)
def test_a_member_of_an_unknown_group_is_told_in_its_version_s_words(
    connect: NewConnection, group: str, topic: str, version: int, code: ErrorCode
) -> None:
    more = {"generation_id_or_member_epoch": 1, "member_id": "who"}
    assert commit(connect(), group, {topic: {0: 1}}, version, **more) == {(topic, 0): code}


def test_strangers_do_not_commit_for_a_group_with_members(
    connect: NewConnection, group: str, topic: str
) -> None:
    connection = connect()
    member = stable(connection, group)
    refused = commit(connection, group, {topic: {0: 1}})
    assert refused == {(topic, 0): ErrorCode.unknown_member_id}
    more = {"generation_id_or_member_epoch": 1, "member_id": member.member_id}
    assert commit(connection, group, {topic: {0: 1}}, **more) == {(topic, 0): NONE}


def test_an_empty_group_id_may_keep_offsets(connect: NewConnection, group: str, topic: str) -> None:
    connection = connect()
    wait_for_coordinator(connection, "")
    assert commit(connection, "", {topic: {0: 5}}) == {(topic, 0): NONE}
    assert committed(connection, "")[topic, 0] == (5, "note")


def test_metadata_longer_than_allowed_is_refused(
    connect: NewConnection, group: str, topic: str
) -> None:
    parts = [
        {"partition_index": index, "committed_offset": 1, "committed_metadata": "x" * size}
        for index, size in enumerate((4096, 4097))
    ]
    answer = connect().ask(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"name": topic, "partitions": parts}],
    )
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [NONE, ErrorCode.offset_metadata_too_large]


def test_from_version_10_on_topics_go_by_their_ids(
    connect: NewConnection, group: str, topic: str
) -> None:
    connection = connect()
    known, unknown = metadata(connection, topic).topics[0].topic_id, uuid.uuid4()
    parts = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    answer = connection.ask(
        "offset_commit",
        10,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"topic_id": each, "partitions": parts} for each in (known, unknown)],
    )
    codes = {each.topic_id: each.partitions[0].error_code for each in answer.topics}
    assert codes == {known: NONE, unknown: ErrorCode.unknown_topic_id}
    asked = [{"topic_id": each, "partition_indexes": [0, 1]} for each in (known, unknown)]
    groups = [{"group_id": group, "topics": asked}, {"group_id": group, "topics": None}]
    some, everything = connection.ask("offset_fetch", 10, groups=groups).groups
    found = {
        (each.topic_id, one.partition_index): (one.committed_offset, one.error_code)
        for each in some.topics
        for one in each.partitions
    }
    no_topic = (-1, ErrorCode.unknown_topic_id)
    assert found == {
        (known, 0): (5, NONE),
        (known, 1): (-1, NONE),
        (unknown, 0): no_topic,
        (unknown, 1): no_topic,
    }
    assert [each.topic_id for each in everything.topics] == [known]


@pytest.mark.parametrize("version", range(1, 8))
def test_fm10_every_partition_asked_for_is_answered(
    connect: NewConnection, group: str, topic: str, version: int
) -> None:
    connection = connect()
    commit(connection, group, {topic: {1: 7}})
    asked = [
        {"name": topic, "partition_indexes": [0, 1]},
        {"name": "nowhere", "partition_indexes": [3]},
    ]
    answer = connection.ask("offset_fetch", version, group_id=group, topics=asked)
    found = {
        (each.name, one.partition_index): (one.committed_offset, one.error_code)
        for each in answer.topics
        for one in each.partitions
    }
    nothing = (-1, NONE)
    assert found == {(topic, 0): nothing, (topic, 1): (7, NONE), ("nowhere", 3): nothing}


def test_offsets_of_topics_that_nobody_reads_are_deleted(
    connect: NewConnection, group: str, topic: str
) -> None:
    connection = connect()

    def delete(name: str, *indexes: int) -> Any:
        parts = [{"partition_index": index} for index in indexes]
        asked = [{"name": name, "partitions": parts}]
        return connection.ask("offset_delete", 0, group_id=group, topics=asked)

    assert delete(topic, 0).error_code == ErrorCode.group_id_not_found
    commit(connection, group, {topic: {0: 5, 1: 6}})
    answer = delete(topic, 0, 9)
    assert answer.error_code == NONE
    codes = {one.partition_index: one.error_code for one in answer.topics[0].partitions}
    assert codes == {0: NONE, 9: ErrorCode.unknown_topic_or_partition}
    assert committed(connection, group) == {(topic, 1): (6, "note")}


def test_offsets_without_a_group_cannot_be_deleted(ask: Callable[..., Any]) -> None:
    answer = ask("offset_delete", 0, group_id="", topics=[])
    assert answer.error_code == ErrorCode.invalid_group_id
