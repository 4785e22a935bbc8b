"""Directories of a node: described by absolute path, and replicas that stay where they are."""

from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.clients.asking import NONE
from tests.clients.scenarios import NewTopic
from tests.clients.wire import Connection

ELSEWHERE = "/no-such-directory"


def log_dir(connection: Connection) -> str:
    """The only directory of the server under test."""
    (described,) = connection.ask("describe_log_dirs", 4, topics=None).results
    return str(described.log_dir)


def move(
    connection: Connection, version: int, *asked: tuple[str, dict[str, list[int]]]
) -> dict[tuple[str, int], Any]:
    """The error of each partition."""
    dirs = [
        {"path": path, "topics": [{"name": n, "partitions": p} for n, p in topics.items()]}
        for path, topics in asked
    ]
    results = connection.ask("alter_replica_log_dirs", version, dirs=dirs).results
    return {(t.topic_name, p.partition_index): p.error_code for t in results for p in t.partitions}


def test_a_directory_is_named_by_its_absolute_path(connection: Connection) -> None:
    assert Path(log_dir(connection)).is_absolute()


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_to_the_directory_it_is_in_and_to_no_other(
    connection: Connection, topic: NewTopic, version: int
) -> None:
    name, here = topic(partitions=2), log_dir(connection)
    assert move(connection, version, (here, {name: [0, 1]})) == {(name, 0): NONE, (name, 1): NONE}
    lost = ErrorCode.log_dir_not_found
    for path in (ELSEWHERE, "relative", here + "/", ""):
        assert move(connection, version, (path, {name: [0]})) == {(name, 0): lost}
    assert move(connection, version) == {}


def test_a_replica_that_is_not_there_does_not_move(connection: Connection, topic: NewTopic) -> None:
    name, here = topic(), log_dir(connection)
    unknown = ErrorCode.unknown_topic_or_partition
    asked = {name: [7], "no-such-topic": [0]}
    assert move(connection, 2, (here, asked)) == {(name, 7): unknown, ("no-such-topic", 0): unknown}


def test_of_two_directories_for_one_replica_the_last_counts(
    connection: Connection, topic: NewTopic
) -> None:
    name, here = topic(), log_dir(connection)
    assert move(connection, 2, (ELSEWHERE, {name: [0]}), (here, {name: [0]})) == {(name, 0): NONE}
