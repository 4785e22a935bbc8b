"""Produce: what is refused and how, acknowledgements, and idempotent producers."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from kio.schema.errors import ErrorCode
from tests.clients.asking import (
    NONE,
    append,
    fetch,
    list_offset,
    metadata,
    new_producer_id,
    produce,
)
from tests.clients.batches import Batch, headers, old_message
from tests.clients.scenarios import NewTopic
from tests.clients.wire import API_KEYS, Connection
from tests.servers import Server

GOOD = Batch(values=[b"a", b"b"])
LATEST = -1

BAD = {
    "wrong crc": (Batch(values=[b"a"], crc=5).encode(), ErrorCode.corrupt_message),
    "count too high": (Batch(values=[b"a"], count=3).encode(), ErrorCode.invalid_record),
    "no records": (Batch(values=[]).encode(), ErrorCode.invalid_record),
    "last offset too low": (
        Batch(values=[b"a", b"b"], last_offset_delta=0).encode(),
        ErrorCode.invalid_record,
    ),
    "negative last offset": (
        Batch(values=[b"a", b"b"], last_offset_delta=-1).encode(),
        ErrorCode.invalid_record,
    ),
    "length beyond the data": (
        Batch(values=[b"a"], length=1000).encode(),
        ErrorCode.invalid_record,
    ),
    "magic 0": (old_message(0, b"v"), ErrorCode.invalid_record),
    "magic 1": (old_message(1, b"v"), ErrorCode.invalid_record),
    "two batches": (GOOD.encode() * 2, ErrorCode.invalid_record),
    "control batch": (Batch(values=[b"a"], attributes=0x20).encode(), ErrorCode.invalid_record),
    "nothing": (b"", ErrorCode.invalid_record),
}
BAD_REQUEST = {
    "length below the header": Batch(values=[b"a"], length=10).encode(),
    "negative length": Batch(values=[b"a"], length=-5).encode(),
    "magic 3": Batch(values=[b"a"], magic=3).encode(),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("version", [3, 9])
def test_fm16_a_bad_batch_is_refused_and_other_partitions_are_unharmed(
    connection: Connection, topic: NewTopic, kind: str, version: int
) -> None:
    name = topic(partitions=2)
    bad, code = BAD[kind]
    answer = produce(connection, name, {0: bad, 1: GOOD.encode()}, version=version)
    assert (answer[0].error_code, answer[0].base_offset) == (code, -1)
    assert (answer[1].error_code, answer[1].base_offset) == (NONE, 0)
    assert list_offset(connection, name, LATEST).offset == 0
    assert append(connection, name, GOOD) == 0


@pytest.mark.parametrize("kind", BAD_REQUEST)
def test_fm16_a_batch_that_is_none_is_corrupt(
    connection: Connection, topic: NewTopic, server: Server, kind: str
) -> None:
    """Kafka refuses the whole request here, so the other partition is only our own affair."""
    name = topic(partitions=2)
    answer = produce(connection, name, {0: BAD_REQUEST[kind], 1: GOOD.encode()})
    assert (answer[0].error_code, answer[0].base_offset) == (ErrorCode.corrupt_message, -1)
    if server.name == "chronik":
        assert (answer[1].error_code, answer[1].base_offset) == (NONE, 0)
    assert list_offset(connection, name, LATEST).offset == 0


@pytest.mark.chronik_only(reason="Apache Kafka never answers a Produce with null records")
def test_fm16_null_records_are_refused(connection: Connection, topic: NewTopic) -> None:
    answer = produce(connection, topic(), {0: None})[0]
    assert answer.error_code in (ErrorCode.invalid_record, ErrorCode.corrupt_message)


def test_fm12_fm13_the_server_decides_the_offset_and_the_crc_stays_right(
    connection: Connection, topic: NewTopic
) -> None:
    """Kafka refuses a first batch that does not start at 0; nobody takes the client's number."""
    name = topic()
    assert append(connection, name, GOOD) == 0
    strange = Batch(values=[b"c"], base_offset=999).encode()
    answer = produce(connection, name, {0: strange})[0]
    assert answer.error_code in (NONE, ErrorCode.invalid_record)
    after = 2 if answer.error_code == ErrorCode.invalid_record else 3
    assert append(connection, name, GOOD) == after
    found = headers(fetch(connection, name).records)
    assert [each.base_offset for each in found] == sorted({0, 2, after})
    assert all(each.crc_is_right for each in found)


@pytest.mark.parametrize("version", range(3, 13))
def test_every_produce_version_appends(
    connection: Connection, topic: NewTopic, version: int
) -> None:
    name = topic()
    answer = produce(connection, name, {0: GOOD.encode()}, version=version)[0]
    assert (answer.error_code, answer.base_offset) == (NONE, 0)
    if version >= 5:
        assert answer.log_start_offset == 0


def test_unknown_partitions_are_refused_alone(connection: Connection, topic: NewTopic) -> None:
    answer = produce(connection, topic(), {0: GOOD.encode(), 99: GOOD.encode()})
    assert (answer[0].error_code, answer[0].base_offset) == (NONE, 0)
    assert answer[99].error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_other_than_0_1_and_all_are_refused(
    connection: Connection, topic: NewTopic, acks: int
) -> None:
    name = topic()
    answer = produce(connection, name, {0: GOOD.encode()}, acks=acks)[0]
    assert answer.error_code == ErrorCode.invalid_required_acks
    assert list_offset(connection, name, LATEST).offset == 0


def test_fm15_acks_0_gets_no_response(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    part = {"index": 0, "records": GOOD.encode()}
    asked = {"acks": 0, "timeout": 1000, "topic_data": [{"name": name, "partition_data": [part]}]}
    for _ in range(3):
        connection.send("produce", 9, **asked)
    assert append(connection, name, GOOD) == 6


def test_fm15_acks_0_that_fails_closes_the_connection(server: Server, topic: NewTopic) -> None:
    """The only sign that a producer without acknowledgements can get."""
    part = {"index": 99, "records": GOOD.encode()}
    data = [{"name": topic(), "partition_data": [part]}]
    with Connection(server.port) as connection:
        connection.send("produce", 9, acks=0, timeout=1000, topic_data=data)
        assert connection.closed_by_server()


def test_a_batch_above_the_topics_limit_is_refused(connection: Connection, topic: NewTopic) -> None:
    name = topic(partitions=2, **{"max.message.bytes": 1000})
    big = Batch(values=[b"x" * 1000]).encode()
    answer = produce(connection, name, {0: big, 1: GOOD.encode()})
    assert answer[0].error_code == ErrorCode.message_too_large
    assert answer[1].error_code == NONE


def test_log_append_time_is_the_servers(connection: Connection, topic: NewTopic) -> None:
    name = topic(**{"message.timestamp.type": "LogAppendTime"})
    answer = produce(connection, name, {0: GOOD.encode()})[0]
    stamp = answer.log_append_time
    assert stamp is not None
    found = headers(fetch(connection, name).records)
    assert [each.crc_is_right for each in found] == [True]
    assert list_offset(connection, name, -3, version=7).offset in (0, 1)


def test_fm20_concurrent_produces_never_share_an_offset(server: Server, topic: NewTopic) -> None:
    name = topic()

    def write(_: int) -> list[int]:
        with Connection(server.port) as connection:
            return [append(connection, name, GOOD) for _ in range(25)]

    with ThreadPoolExecutor(8) as pool:
        offsets = [offset for some in pool.map(write, range(8)) for offset in some]
    assert sorted(offsets) == list(range(0, 400, 2))


def test_fm20_pipelined_produces_get_offsets_in_order(
    connection: Connection, topic: NewTopic
) -> None:
    name = topic()
    part = {"index": 0, "records": GOOD.encode()}
    asked = {"acks": -1, "timeout": 9000, "topic_data": [{"name": name, "partition_data": [part]}]}
    sent = [connection.send("produce", 9, **asked) for _ in range(20)]
    answers = [connection.read("produce", 9, each) for each in sent]
    found = [each.responses[0].partition_responses[0].base_offset for each in answers]
    assert found == list(range(0, 40, 2))


# ---- idempotence


def numbered(producer_id: int, sequence: int, epoch: int = 0, count: int = 1) -> bytes:
    values = [b"v"] * count
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "sequence": sequence}
    return Batch(values=values, **fields).encode()


def test_fm72_a_duplicate_gets_its_original_offset(connection: Connection, topic: NewTopic) -> None:
    name, producer = topic(), new_producer_id(connection)
    for n in range(5):
        answer = produce(connection, name, {0: numbered(producer, 2 * n, count=2)})[0]
        assert (answer.error_code, answer.base_offset) == (NONE, 2 * n)
    for n in range(5):
        answer = produce(connection, name, {0: numbered(producer, 2 * n, count=2)})[0]
        assert (answer.error_code, answer.base_offset) == (NONE, 2 * n)
    assert list_offset(connection, name, LATEST).offset == 10


def test_fm71_a_gap_in_the_sequence_is_refused(connection: Connection, topic: NewTopic) -> None:
    name, producer = topic(), new_producer_id(connection)
    assert produce(connection, name, {0: numbered(producer, 0)})[0].error_code == NONE
    answer = produce(connection, name, {0: numbered(producer, 5)})[0]
    assert answer.error_code == ErrorCode.out_of_order_sequence_number
    assert produce(connection, name, {0: numbered(producer, 1)})[0].base_offset == 1


def test_fm71_five_in_flight_keep_their_order(connection: Connection, topic: NewTopic) -> None:
    name, producer = topic(), new_producer_id(connection)
    sent = []
    for n in range(5):
        part = {"index": 0, "records": numbered(producer, n)}
        data = [{"name": name, "partition_data": [part]}]
        sent.append(connection.send("produce", 9, acks=-1, timeout=9000, topic_data=data))
    answers = [connection.read("produce", 9, each) for each in sent]
    found = [each.responses[0].partition_responses[0] for each in answers]
    assert [(each.error_code, each.base_offset) for each in found] == [(NONE, n) for n in range(5)]


def test_fm75_an_older_epoch_is_fenced(connection: Connection, topic: NewTopic) -> None:
    name, producer = topic(), new_producer_id(connection)
    assert produce(connection, name, {0: numbered(producer, 0)})[0].error_code == NONE
    assert produce(connection, name, {0: numbered(producer, 0, epoch=1)})[0].base_offset == 1
    answer = produce(connection, name, {0: numbered(producer, 1, epoch=0)})[0]
    assert answer.error_code == ErrorCode.invalid_producer_epoch
    answer = produce(connection, name, {0: numbered(producer, 5, epoch=2)})[0]
    assert answer.error_code == ErrorCode.out_of_order_sequence_number
    assert list_offset(connection, name, LATEST).offset == 2


def test_fm74_producer_ids_are_never_given_twice(server: Server) -> None:
    def ask(_: int) -> list[int]:
        with Connection(server.port) as connection:
            return [new_producer_id(connection) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        found = [each for some in pool.map(ask, range(4)) for each in some]
    assert len(set(found)) == 80


def test_sequences_are_kept_per_partition(connection: Connection, topic: NewTopic) -> None:
    name, producer = topic(partitions=2), new_producer_id(connection)
    first = numbered(producer, 0)
    answer = produce(connection, name, {0: first, 1: first})
    assert [answer[n].base_offset for n in (0, 1)] == [0, 0]
    answer = produce(connection, name, {0: numbered(producer, 1), 1: first})
    assert [answer[n].base_offset for n in (0, 1)] == [1, 0]


def test_producers_are_described(connection: Connection, topic: NewTopic) -> None:
    name, producer = topic(partitions=2), new_producer_id(connection)
    assert produce(connection, name, {0: numbered(producer, 0, count=3)})[0].error_code == NONE
    asked = [{"name": name, "partition_indexes": [0, 1, 9]}]
    (answer,) = connection.ask("describe_producers", 0, topics=asked).topics
    found = {each.partition_index: each for each in answer.partitions}
    (active,) = found[0].active_producers
    assert (active.producer_id, active.producer_epoch) == (producer, 0)
    assert active.last_sequence == 2
    assert (found[1].error_code, found[1].active_producers) == (NONE, ())
    assert found[9].error_code == ErrorCode.unknown_topic_or_partition


def test_produce_by_topic_id(connection: Connection, topic: NewTopic) -> None:
    answer = connection.ask("api_versions", 0)
    high = {each.api_key: each.max_version for each in answer.api_keys}[API_KEYS["produce"]]
    if high < 13:
        pytest.skip("the server offers no Produce by topic id")
    name = topic()
    (known,) = metadata(connection, name).topics
    data = [
        {"topic_id": known.topic_id, "partition_data": [{"index": 0, "records": GOOD.encode()}]}
    ]
    answer = connection.ask("produce", 13, acks=-1, timeout=9000, topic_data=data)
    found = answer.responses[0].partition_responses[0]
    assert (found.error_code, found.base_offset) == (NONE, 0)
