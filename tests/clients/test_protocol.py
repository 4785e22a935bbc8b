"""The protocol itself: frames, headers, versions, order, lenience, names and addresses."""

import contextlib
import struct
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from tests.clients.asking import NONE, advertised, fetch_fields, metadata, topic_id
from tests.clients.kit import eventually
from tests.clients.scenarios import NewTopic
from tests.clients.wire import (
    API_KEYS,
    Connection,
    ConnectionClosedError,
    request_body,
    request_header,
)
from tests.servers import Server

NO_SUCH = "no-such-topic"
ONE_TOPIC = [{"name": NO_SUCH, "num_partitions": 1, "replication_factor": 1}]
HARMLESS: dict[str, dict[str, Any]] = {
    "produce": {"acks": -1, "timeout": 1000},
    "fetch": {"replica_id": -1},
    "list_offsets": {"replica_id": -1},
    "metadata": {"topics": []},
    "api_versions": {"client_software_name": "test", "client_software_version": "1"},
    "create_topics": {"timeout": 1000},
    "delete_topics": {"timeout": 1000, "topic_names": [NO_SUCH], "topics": [{"name": NO_SUCH}]},
    "delete_records": {"timeout": 1000},
    "create_partitions": {"timeout": 1000},
    "describe_configs": {"resources": []},
    "alter_configs": {"resources": []},
    "incremental_alter_configs": {"resources": []},
    "describe_cluster": {"endpoint_type": 1},
    "describe_log_dirs": {"topics": []},
    "describe_producers": {},
    "describe_topic_partitions": {"response_partition_limit": 10},
    "offset_for_leader_epoch": {"replica_id": -1},
    "find_coordinator": {"key": "g", "coordinator_keys": ["g"]},
    "list_groups": {},
    "describe_groups": {},
    "delete_groups": {},
}


@pytest.mark.parametrize("api", HARMLESS)
def test_fm01_every_advertised_version_answers_in_its_own_form(
    connection: Connection, api: str
) -> None:
    """A tag byte too many or too few in header or body shows as bytes left over or missing."""
    offered = advertised(connection)
    if API_KEYS[api] not in offered:
        pytest.skip(f"the server does not offer {api}")
    low, high = offered[API_KEYS[api]]
    for version in range(low, high + 1):
        if version in schema_name_map[api]:
            connection.ask(api, version, **HARMLESS[api])


@pytest.mark.parametrize("version", range(1, 7))
def test_fm02_topics_are_deleted_in_every_version(
    connection: Connection, topic: NewTopic, version: int
) -> None:
    name = topic()
    asked = {"topic_names": [name], "topics": [{"name": name}], "timeout": 10_000}
    (answer,) = connection.ask("delete_topics", version, **asked).responses
    assert (answer.name, answer.error_code) == (name, NONE)
    (answer,) = connection.ask("delete_topics", version, **asked).responses
    assert answer.error_code == ErrorCode.unknown_topic_or_partition


def test_fm02_a_topic_is_deleted_by_its_id(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    known = topic_id(connection, name)
    asked = {"topics": [{"topic_id": known}, {"topic_id": uuid.uuid4()}], "timeout": 10_000}
    answers = {e.topic_id: e for e in connection.ask("delete_topics", 6, **asked).responses}
    assert (answers[known].name, answers.pop(known).error_code) == (name, NONE)
    assert [each.error_code for each in answers.values()] == [ErrorCode.unknown_topic_id]
    assert eventually(lambda: name not in {e.name for e in metadata(connection).topics})


@pytest.mark.parametrize("length", [-1, 2**31 - 1, -(2**31)])
def test_fm03_an_array_of_impossible_length_harms_nobody(server: Server, length: int) -> None:
    """Kafka closes the connection; an error in the answer would be as good."""
    with Connection(server.port) as connection:
        body = struct.pack(">i", length)
        connection.send_frame(request_header("create_topics", 2, 1) + body)
        with contextlib.suppress(ConnectionClosedError):
            connection.read_frame()
    with Connection(server.port) as connection:
        assert metadata(connection).brokers


def test_fm05_api_versions_of_the_future_is_answered_in_the_first_form(
    connection: Connection,
) -> None:
    connection.send_frame(struct.pack(">hhih", 18, 99, 4711, -1) + b"\0anything")
    frame = connection.read_frame()
    assert struct.unpack_from(">ih", frame) == (4711, ErrorCode.unsupported_version.value)
    (count,) = struct.unpack_from(">i", frame, 6)
    keys = [struct.unpack_from(">hhh", frame, 10 + 6 * n) for n in range(count)]
    low, high = next((low, high) for key, low, high in keys if key == 18)
    assert low == 0
    assert high >= 3
    assert metadata(connection).brokers


@pytest.mark.chronik_only(reason="Apache Kafka closes the connection")
@pytest.mark.parametrize(("key", "version"), [(999, 0), (1, 99), (3, 99), (0, 1000)])
def test_fm05_an_unknown_api_or_version_is_answered_and_the_connection_lives(
    connection: Connection, key: int, version: int
) -> None:
    connection.send_frame(struct.pack(">hhih", key, version, 4711, -1) + b"\0" * 8)
    frame = connection.read_frame()
    assert struct.unpack_from(">i", frame) == (4711,)
    assert struct.pack(">h", ErrorCode.unsupported_version.value) in frame[4:]
    assert metadata(connection).brokers


def test_fm06_responses_leave_in_request_order(connection: Connection, topic: NewTopic) -> None:
    """A long poll that finds nothing goes first, and still its answer comes first."""
    name = topic()
    waiting = fetch_fields(name, {0: 0}, max_wait=400, min_bytes=1)
    first = connection.send("fetch", 12, **waiting)
    second = connection.send("metadata", 12, topics=[])
    third = connection.send("api_versions", 0)
    connection.read("fetch", 12, first)
    connection.read("metadata", 12, second)
    connection.read("api_versions", 0, third)


def test_fm07_api_versions_answers_with_the_first_response_header(connection: Connection) -> None:
    software = {"client_software_name": "a-client.name", "client_software_version": "1.2-x"}
    for version in (3, 4):
        answer = connection.ask("api_versions", version, **software)
        assert answer.error_code == NONE
        assert {0, 1, 2, 3, 18} <= {each.api_key for each in answer.api_keys}


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("-a", "1"), ("a", "")])
def test_fm07_bad_software_names_are_refused(
    connection: Connection, name: str, version: str
) -> None:
    software = {"client_software_name": name, "client_software_version": version}
    answer = connection.ask("api_versions", 3, **software)
    assert answer.error_code == ErrorCode.invalid_request


def test_fm09_unknown_tagged_fields_and_trailing_bytes_are_ignored(
    connection: Connection, topic: NewTopic
) -> None:
    name = topic()
    unknown_tag = b"\x01\x63\x03abc"
    header = request_header("metadata", 12, 1)
    body = request_body("metadata", 12, topics=[{"name": name}])
    assert header.endswith(b"\0")
    assert body.endswith(b"\0")
    for start, rest in (
        (header, body[:-1] + unknown_tag),
        (header[:-1] + unknown_tag, body),
        (header, body + b"trailing"),
        (header[:-1] + unknown_tag, body[:-1] + unknown_tag + b"trailing"),
    ):
        connection.send_frame(start + rest)
        answer = connection.read("metadata", 12, 1)
        assert [each.name for each in answer.topics] == [name]


@pytest.mark.parametrize("version", range(13))
def test_fm14_every_metadata_version_names_the_advertised_address(
    connection: Connection, topic: NewTopic, server: Server, version: int
) -> None:
    low, high = advertised(connection)[API_KEYS["metadata"]]
    if not low <= version <= high:
        pytest.skip("the server does not offer this version")
    name = topic(partitions=3)
    answer = metadata(connection, name, version=version)
    assert [f"{each.host}:{each.port}" for each in answer.brokers] == [server.bootstrap]
    (found,) = answer.topics
    assert sorted(each.partition_index for each in found.partitions) == [0, 1, 2]
    assert {each.leader_id for each in found.partitions} == {answer.brokers[0].node_id}
    assert not found.is_internal if version >= 1 else True


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 200 * 1024 * 1024])
def test_fm17_a_frame_of_impossible_length_closes_only_its_connection(
    server: Server, connection: Connection, length: int
) -> None:
    with Connection(server.port) as bad:
        bad.send_bytes(struct.pack(">i", length) + b"abc")
        assert bad.closed_by_server()
    assert metadata(connection).brokers


def test_fm17_a_frame_too_short_for_a_header_closes_only_its_connection(
    server: Server, connection: Connection
) -> None:
    with Connection(server.port) as bad:
        bad.send_frame(b"abc")
        assert bad.closed_by_server()
    assert metadata(connection).brokers


def test_a_request_that_arrives_in_pieces_is_read_whole(connection: Connection) -> None:
    frame = request_header("metadata", 12, 1) + request_body("metadata", 12, topics=[])
    data = struct.pack(">i", len(frame)) + frame
    for position in range(len(data)):
        connection.send_bytes(data[position : position + 1])
    assert connection.read("metadata", 12, 1).brokers


def test_metadata_tells_unknown_topics_and_creates_them_when_asked(
    connection: Connection,
) -> None:
    name = f"auto-{uuid.uuid4().hex[:12]}"
    (answer,) = metadata(connection, name).topics
    assert answer.error_code == ErrorCode.unknown_topic_or_partition

    def created() -> bool:
        (found,) = metadata(connection, name, create=True).topics
        return bool(found.error_code == NONE and found.partitions)

    assert eventually(created)


def test_metadata_knows_topics_by_id(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    known = topic_id(connection, name)
    asked = [{"topic_id": known, "name": None}, {"topic_id": uuid.uuid4(), "name": None}]
    answer = connection.ask("metadata", 12, topics=asked)
    found = {each.topic_id: each for each in answer.topics}
    assert (found[known].name, found.pop(known).error_code) == (name, NONE)
    assert [each.error_code for each in found.values()] == [ErrorCode.unknown_topic_id]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"num_partitions": 0}, ErrorCode.invalid_partitions),
        ({"replication_factor": 5}, ErrorCode.invalid_replication_factor),
        ({"name": ".."}, ErrorCode.invalid_topic_exception),
        ({"configs": [{"name": "no.such", "value": "1"}]}, ErrorCode.invalid_config),
        ({"configs": [{"name": "segment.bytes", "value": "x"}]}, ErrorCode.invalid_config),
    ],
)
def test_fm04_bad_topics_are_refused_with_a_message_and_the_good_one_is_made(
    connection: Connection, fields: dict[str, Any], code: ErrorCode
) -> None:
    good, bad = (f"create-{uuid.uuid4().hex[:12]}" for _ in range(2))
    base = {"name": bad, "num_partitions": 1, "replication_factor": 1}
    asked = [{**base, **fields}, {**base, "name": good}]
    answer = connection.ask("create_topics", 7, topics=asked, timeout=10_000)
    results = {each.name: each for each in answer.topics}
    assert results[good].error_code == NONE
    refused = results[fields.get("name", bad)]
    assert refused.error_code == code
    assert refused.error_message


def test_create_topics_only_validates_when_asked(connection: Connection) -> None:
    name = f"create-{uuid.uuid4().hex[:12]}"
    asked = [{"name": name, "num_partitions": 2, "replication_factor": 1}]
    answer = connection.ask("create_topics", 7, topics=asked, timeout=10_000, validate_only=True)
    assert answer.topics[0].error_code == NONE
    assert answer.topics[0].num_partitions == 2
    assert name not in {each.name for each in metadata(connection).topics}


def test_fm34_many_topics_in_one_request_are_all_made(connection: Connection) -> None:
    prefix = f"many-{uuid.uuid4().hex[:8]}"
    wanted = {f"{prefix}-{n}": 1 + n % 3 for n in range(20)}
    asked = [
        {"name": name, "num_partitions": count, "replication_factor": -1}
        for name, count in wanted.items()
    ]
    answer = connection.ask("create_topics", 7, topics=asked, timeout=20_000)
    assert {each.name: each.num_partitions for each in answer.topics} == wanted

    def seen() -> dict[str, int]:
        return {each.name: len(each.partitions) for each in metadata(connection, *wanted).topics}

    assert eventually(lambda: seen() == wanted)


def test_topic_partitions_are_described_page_by_page(
    connection: Connection, topic: NewTopic
) -> None:
    names = sorted(topic(partitions=3) for _ in range(2))
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        answer = connection.ask(
            "describe_topic_partitions",
            0,
            topics=[{"name": name} for name in names],
            response_partition_limit=2,
            cursor=cursor,
        )
        page = [(e.name, part.partition_index) for e in answer.topics for part in e.partitions]
        assert len(page) <= 2
        seen += page
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
    assert seen == [(name, number) for name in names for number in range(3)]


def test_describe_topic_partitions_tells_unknown_topics(connection: Connection) -> None:
    asked = {"topics": [{"name": NO_SUCH}], "response_partition_limit": 10}
    answer = connection.ask("describe_topic_partitions", 0, **asked)
    assert answer.topics[0].error_code == ErrorCode.unknown_topic_or_partition
