"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, version by version."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.clients.asking import NONE, append, fetch, leader_epoch, list_offset
from tests.clients.batches import DEFAULT_TIME_MS, Batch
from tests.clients.scenarios import NewTopic
from tests.clients.wire import Connection

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


def three_times(connection: Connection, topic: str) -> None:
    """Offsets 0, 1, 2 at 0, 900 and 500 ms."""
    for later in (0, 900, 500):
        append(connection, topic, Batch(values=[b"v"], time_ms=DEFAULT_TIME_MS + later))


@pytest.mark.parametrize("version", range(1, 11))
def test_fm11_every_version_finds_offsets(
    connection: Connection, topic: NewTopic, version: int
) -> None:
    name = topic()
    three_times(connection, name)

    def found(timestamp: int) -> tuple[int, int]:
        answer = list_offset(connection, name, timestamp, version=version)
        assert answer.error_code == NONE
        return answer.offset, answer.timestamp

    assert found(EARLIEST) == (0, -1)
    assert found(LATEST) == (3, -1)
    assert found(DEFAULT_TIME_MS) == (0, DEFAULT_TIME_MS)
    assert found(DEFAULT_TIME_MS + 1) == (1, DEFAULT_TIME_MS + 900)
    assert found(DEFAULT_TIME_MS + 901) == (-1, -1)
    if version >= 7:
        assert found(MAX_TIMESTAMP) == (1, DEFAULT_TIME_MS + 900)


def test_fm11_a_time_inside_of_a_batch_is_found(connection: Connection, topic: NewTopic) -> None:
    """The batch's header knows only the first and the last time, its records know the rest."""
    name = topic()
    append(connection, name, Batch(values=[b"v"] * 3, spread_ms=10))
    found = list_offset(connection, name, DEFAULT_TIME_MS + 5)
    assert (found.offset, found.timestamp) == (1, DEFAULT_TIME_MS + 10)
    found = list_offset(connection, name, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (2, DEFAULT_TIME_MS + 20)


def test_fm11_the_leader_epoch_comes_along(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    three_times(connection, name)
    epoch = leader_epoch(connection, name)
    for timestamp in (EARLIEST, LATEST, DEFAULT_TIME_MS):
        assert list_offset(connection, name, timestamp).leader_epoch == epoch


def test_fm11_an_unknown_partition_is_an_error(connection: Connection, topic: NewTopic) -> None:
    answer = list_offset(connection, topic(), LATEST, partition=9)
    assert answer.error_code == ErrorCode.unknown_topic_or_partition


def test_fm11_a_newer_leader_epoch_is_unknown(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    epoch = leader_epoch(connection, name) + 1
    part = {"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": epoch}
    topics = [{"name": name, "partitions": [part]}]
    answer = connection.ask("list_offsets", 8, replica_id=-1, topics=topics)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.unknown_leader_epoch


def epoch_end(connection: Connection, topic: str, version: int, **fields: Any) -> Any:
    topics = [{"topic": topic, "partitions": [{"partition": 0, **fields}]}]
    answer = connection.ask("offset_for_leader_epoch", version, replica_id=-1, topics=topics)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_current_epoch_ends_at_the_log_end(
    connection: Connection, topic: NewTopic, version: int
) -> None:
    name = topic()
    three_times(connection, name)
    epoch = leader_epoch(connection, name)
    found = epoch_end(connection, name, version, leader_epoch=epoch, current_leader_epoch=epoch)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (NONE, epoch, 3)


def test_an_epoch_that_never_was_has_no_end(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    three_times(connection, name)
    found = epoch_end(connection, name, 4, leader_epoch=leader_epoch(connection, name) + 5)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (NONE, -1, -1)


def test_a_client_ahead_of_the_leader_is_told(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    epoch = leader_epoch(connection, name)
    ahead = epoch_end(connection, name, 4, leader_epoch=epoch, current_leader_epoch=epoch + 1)
    assert ahead.error_code == ErrorCode.unknown_leader_epoch


@pytest.mark.parametrize("version", [0, 1, 2])
def test_fm27_every_version_of_delete_records_moves_the_start(
    connection: Connection, topic: NewTopic, version: int
) -> None:
    name = topic()
    three_times(connection, name)

    def delete(before: int) -> Any:
        part = {"partition_index": 0, "offset": before}
        topics = [{"name": name, "partitions": [part]}]
        answer = connection.ask("delete_records", version, topics=topics, timeout=10_000)
        return answer.topics[0].partitions[0]

    assert (delete(2).error_code, delete(2).low_watermark) == (NONE, 2)
    assert delete(1).low_watermark == 2
    assert delete(99).error_code == ErrorCode.offset_out_of_range
    assert list_offset(connection, name, EARLIEST).offset == 2
    assert fetch(connection, name, offset=1).error_code == ErrorCode.offset_out_of_range
    kept = fetch(connection, name, offset=2)
    assert (kept.error_code, kept.log_start_offset, kept.high_watermark) == (NONE, 2, 3)
