"""Fetch: limits, waiting, sessions (KIP-227), topic ids (KIP-516), leader epochs (KIP-320)."""

import time
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.clients.asking import (
    NONE,
    append,
    fetch,
    fetch_fields,
    leader_epoch,
    list_offset,
    partitions_of,
    topic_id,
)
from tests.clients.batches import Batch, headers
from tests.clients.scenarios import NewTopic
from tests.clients.wire import Connection
from tests.servers import Server

LATEST = -1
HUNDRED = Batch(values=[b"x" * 100])
SIZE = len(HUNDRED.encode())


def fill(connection: Connection, topic: str, count: int, partition: int = 0) -> None:
    for _ in range(count):
        append(connection, topic, HUNDRED, partition)


@pytest.mark.parametrize("version", range(4, 13))
def test_every_fetch_version_returns_the_batches(
    connection: Connection, topic: NewTopic, version: int
) -> None:
    name = topic()
    fill(connection, name, 3)
    found = fetch(connection, name, offset=1, version=version)
    assert (found.error_code, found.high_watermark) == (NONE, 3)
    assert [each.base_offset for each in headers(found.records)] == [1, 2]


@pytest.mark.parametrize("version", range(13, 18))
def test_fm18_fetch_by_topic_id(connection: Connection, topic: NewTopic, version: int) -> None:
    name = topic()
    fill(connection, name, 2)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [
        {"topic_id": topic_id(connection, name), "partitions": [part]},
        {"topic_id": uuid.uuid4(), "partitions": [part]},
    ]
    answer = connection.ask("fetch", version, max_bytes=1 << 20, topics=topics)
    known, unknown = (answered_about(answer, each["topic_id"]) for each in topics)
    assert [each.base_offset for each in headers(known.records)] == [0, 1]
    assert unknown.error_code == ErrorCode.unknown_topic_id


def answered_about(answer: Any, wanted: Any) -> Any:
    (found,) = [each for each in answer.responses if each.topic_id == wanted]
    return found.partitions[0]


def test_fetch_of_an_unknown_partition_is_an_error(connection: Connection, topic: NewTopic) -> None:
    fields = fetch_fields(topic(), {0: 0, 9: 0})
    found = partitions_of(connection.ask("fetch", 12, **fields))
    assert found[0].error_code == NONE
    assert found[9].error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("offset", [-1, 4, 1000])
def test_fetch_outside_of_the_log_is_out_of_range(
    connection: Connection, topic: NewTopic, offset: int
) -> None:
    name = topic()
    fill(connection, name, 3)
    found = fetch(connection, name, offset=offset)
    assert found.error_code == ErrorCode.offset_out_of_range


# ---- limits


def test_fm18_a_batch_larger_than_the_limits_is_still_returned(
    connection: Connection, topic: NewTopic
) -> None:
    """KIP-74: a consumer must be able to go on."""
    name = topic()
    fill(connection, name, 2)
    found = fetch(connection, name, partition_max_bytes=10, max_bytes=10)
    assert [each.base_offset for each in headers(found.records)] == [0]


def test_fm18_the_partition_limit_is_kept(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    fill(connection, name, 10)
    limit = 3 * SIZE + 20
    found = fetch(connection, name, partition_max_bytes=limit)
    assert len(found.records) <= limit
    assert [each.base_offset for each in headers(found.records)] == [0, 1, 2]


def test_fm18_the_limit_of_the_answer_is_shared_in_the_order_asked(
    connection: Connection, topic: NewTopic
) -> None:
    name = topic(partitions=3)
    for partition in range(3):
        fill(connection, name, 5, partition)
    fields = fetch_fields(name, {1: 0, 0: 0, 2: 0}, max_bytes=7 * SIZE)
    found = partitions_of(connection.ask("fetch", 12, **fields))
    counts = {number: len(headers(each.records)) for number, each in found.items()}
    assert counts == {1: 5, 0: 2, 2: 0}


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
def test_fm18_a_batch_that_does_not_fit_is_sent_alone_or_with_the_next_fetch(
    connection: Connection, topic: NewTopic, limit: str
) -> None:
    name = topic(partitions=2)
    fill(connection, name, 1)
    append(connection, name, Batch(values=[b"y" * 10_000]), partition=1)
    left = 1 if limit == "partition_max_bytes" else 0
    for first, counts in ((0, {0: 1, 1: 0}), (1, {1: 1, 0: left})):
        fields = fetch_fields(name, {first: 0, 1 - first: 0}, **{limit: 5_000})
        found = partitions_of(connection.ask("fetch", 12, **fields))
        assert {number: len(headers(each.records)) for number, each in found.items()} == counts
        assert [number for number, each in found.items() if not each.records] == [
            number for number, count in counts.items() if not count
        ]
        assert {(each.error_code, each.high_watermark) for each in found.values()} == {(NONE, 1)}


def test_fm18_a_fetch_in_the_middle_of_a_batch_returns_the_whole_batch(
    connection: Connection, topic: NewTopic
) -> None:
    name = topic()
    append(connection, name, Batch(values=[b"v"] * 10))
    found = fetch(connection, name, offset=7)
    assert [each.base_offset for each in headers(found.records)] == [0]


# ---- waiting


def test_fm18_an_empty_answer_waits_max_wait(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    start = time.monotonic()
    found = fetch(connection, name, max_wait=300, min_bytes=1)
    assert not found.records
    assert 0.28 <= time.monotonic() - start < 5


def test_fm18_without_min_bytes_nothing_waits(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    start = time.monotonic()
    assert not fetch(connection, name, max_wait=20_000, min_bytes=0).records
    assert time.monotonic() - start < 5


def test_fm18_a_waiting_fetch_wakes_when_data_arrives(
    connection: Connection, topic: NewTopic, server: Server
) -> None:
    name = topic(partitions=2)
    start = time.monotonic()
    fields = fetch_fields(name, {0: 0, 1: 0}, max_wait=15_000, min_bytes=1)
    waiting = connection.send("fetch", 12, **fields)
    with Connection(server.port) as other:
        append(other, name, HUNDRED, partition=1)
    found = partitions_of(connection.read("fetch", 12, waiting))
    assert [each.base_offset for each in headers(found[1].records)] == [0]
    assert time.monotonic() - start < 5


def test_fm18_a_waiting_fetch_waits_for_min_bytes(
    connection: Connection, topic: NewTopic, server: Server
) -> None:
    name = topic()
    fields = fetch_fields(name, {0: 0}, max_wait=15_000, min_bytes=2 * SIZE)
    waiting = connection.send("fetch", 12, **fields)
    with Connection(server.port) as other:
        fill(other, name, 2)
    found = partitions_of(connection.read("fetch", 12, waiting))[0]
    assert [each.base_offset for each in headers(found.records)] == [0, 1]


def test_an_error_is_answered_without_waiting(connection: Connection, topic: NewTopic) -> None:
    start = time.monotonic()
    found = fetch(connection, topic(), offset=50, max_wait=15_000, min_bytes=1)
    assert found.error_code == ErrorCode.offset_out_of_range
    assert time.monotonic() - start < 5


def test_what_is_wrong_with_one_partition_is_told_though_all_wait_at_the_end(
    connection: Connection, topic: NewTopic
) -> None:
    """A newer epoch, an offset beyond the end."""
    name = topic(partitions=2)
    fill(connection, name, 3, partition=1)
    start = time.monotonic()
    for wrong, code in (
        ({"partition": 1, "fetch_offset": 3, "current_leader_epoch": 9}, "unknown_leader_epoch"),
        ({"partition": 1, "fetch_offset": 4}, "offset_out_of_range"),
    ):
        fields = fetch_fields(name, {0: 0}, max_wait=15_000, min_bytes=1)
        fields["topics"][0]["partitions"].append({**wrong, "partition_max_bytes": 1 << 20})
        found = partitions_of(connection.ask("fetch", 12, **fields))
        assert found[0].error_code == NONE
        assert found[1].error_code == ErrorCode[code]
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_fetch_at_the_end_tells_the_watermark_when_its_time_is_over(
    connection: Connection, topic: NewTopic, epoch: int
) -> None:
    name = topic()
    fill(connection, name, 3)
    fields = fetch_fields(name, {0: 3}, max_wait=100, min_bytes=1)
    fields["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
    found = partitions_of(connection.ask("fetch", 12, **fields))[0]
    assert (found.error_code, found.records) == (NONE, b"")
    assert (found.high_watermark, found.log_start_offset) == (3, 0)


# ---- sessions


def open_session(connection: Connection, topic: str, offsets: dict[int, int]) -> int:
    fields = fetch_fields(topic, offsets, session_id=0, session_epoch=0)
    answer = connection.ask("fetch", 12, **fields)
    assert answer.error_code == NONE
    assert answer.session_id > 0
    assert set(partitions_of(answer)) == set(offsets)
    return int(answer.session_id)


def go_on(
    connection: Connection,
    session: int,
    epoch: int,
    topic: str = "",
    offsets: dict[int, int] | None = None,
    **more: Any,
) -> Any:
    fields = fetch_fields(topic, offsets or {}, session_id=session, session_epoch=epoch, **more)
    return connection.ask("fetch", 12, **fields)


def test_fm18_a_session_answers_only_what_changed(connection: Connection, topic: NewTopic) -> None:
    name = topic(partitions=3)
    session = open_session(connection, name, {0: 0, 1: 0, 2: 0})
    answer = go_on(connection, session, 1)
    assert (answer.session_id, partitions_of(answer)) == (session, {})
    fill(connection, name, 1, partition=1)
    answer = go_on(connection, session, 2)
    assert list(partitions_of(answer)) == [1]
    answer = go_on(connection, session, 3, name, {1: 1})
    assert partitions_of(answer) == {}
    fill(connection, name, 1, partition=1)
    found = partitions_of(go_on(connection, session, 4))
    assert [each.base_offset for each in headers(found[1].records)] == [1]


def test_fm18_a_session_waits_for_all_its_partitions(
    connection: Connection, topic: NewTopic, server: Server
) -> None:
    name = topic(partitions=2)
    session = open_session(connection, name, {0: 0, 1: 0})
    waiting = {"max_wait": 15_000, "min_bytes": 1, "session_id": session, "session_epoch": 1}
    asked = connection.send("fetch", 12, **fetch_fields(name, {}, **waiting))
    with Connection(server.port) as other:
        fill(other, name, 1, partition=1)
    assert list(partitions_of(connection.read("fetch", 12, asked))) == [1]


def test_fm18_partitions_join_and_leave_a_session(connection: Connection, topic: NewTopic) -> None:
    name = topic(partitions=2)
    session = open_session(connection, name, {0: 0})
    assert set(partitions_of(go_on(connection, session, 1, name, {1: 0}))) <= {1}
    fill(connection, name, 1, partition=0)
    fill(connection, name, 1, partition=1)
    forgotten = [{"topic": name, "partitions": [0]}]
    answer = go_on(connection, session, 2, forgotten_topics_data=forgotten)
    assert list(partitions_of(answer)) == [1]


def test_fm18_a_wrong_session_epoch_is_refused(connection: Connection, topic: NewTopic) -> None:
    session = open_session(connection, topic(), {0: 0})
    answer = go_on(connection, session, 5)
    assert answer.error_code == ErrorCode.invalid_fetch_session_epoch
    assert answer.responses == ()
    assert go_on(connection, session, 1).error_code == NONE


def test_fm18_an_unknown_session_is_refused(connection: Connection) -> None:
    answer = go_on(connection, 123_456_789, 1)
    assert answer.error_code == ErrorCode.fetch_session_id_not_found


def test_fm18_a_closed_session_is_gone(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    session = open_session(connection, name, {0: 0})
    answer = go_on(connection, session, -1, name, {0: 0})
    assert (answer.error_code, answer.session_id) == (NONE, 0)
    answer = go_on(connection, session, 1)
    assert answer.error_code == ErrorCode.fetch_session_id_not_found


def test_fm18_a_session_of_topic_ids(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    known = topic_id(connection, name)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic_id": known, "partitions": [part]}]
    fields = {"max_bytes": 1 << 20, "session_epoch": 0, "topics": topics}
    session = connection.ask("fetch", 13, **fields).session_id
    fill(connection, name, 1)
    fields = {"max_bytes": 1 << 20, "session_id": session, "session_epoch": 1, "topics": []}
    answer = connection.ask("fetch", 13, **fields)
    assert len(headers(answered_about(answer, known).records)) == 1
    forgotten = [{"topic_id": known, "partitions": [0]}]
    fields |= {"session_epoch": 2, "forgotten_topics_data": forgotten}
    assert connection.ask("fetch", 13, **fields).responses == ()


# ---- agreement and epochs


def test_fm24_fetch_and_list_offsets_agree(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    for count in range(1, 6):
        assert append(connection, name, HUNDRED) == count - 1
        assert fetch(connection, name, offset=count - 1).high_watermark == count
        assert list_offset(connection, name, LATEST).offset == count


@pytest.mark.parametrize(("ahead", "code"), [(0, NONE), (1, ErrorCode.unknown_leader_epoch)])
def test_the_leader_epoch_of_a_fetch_is_checked(
    connection: Connection, topic: NewTopic, ahead: int, code: ErrorCode
) -> None:
    name = topic()
    fill(connection, name, 1)
    fields = fetch_fields(name, {0: 0})
    part = fields["topics"][0]["partitions"][0]
    part["current_leader_epoch"] = leader_epoch(connection, name) + ahead
    assert partitions_of(connection.ask("fetch", 12, **fields))[0].error_code == code


def test_fetched_batches_carry_the_leader_epoch(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    fill(connection, name, 1)
    (found,) = headers(fetch(connection, name).records)
    assert found.leader_epoch == leader_epoch(connection, name)
    assert found.crc_is_right
