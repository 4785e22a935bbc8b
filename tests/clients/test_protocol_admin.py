"""What administrators ask, where answers of one server could be told from another's."""

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.clients.asking import NONE, list_offset, metadata, new_producer_id, topic_id
from tests.clients.kit import eventually
from tests.clients.scenarios import NewTopic
from tests.clients.wire import Connection

NOT_ASKED = -(2**31)
ON_CLUSTER, ON_TOPIC, ON_GROUP = 8096, 3576, 3400
"""Every operation that there is, as KIP-430 counts them: neither server has ACLs."""
TOPIC = 2


def new_name() -> str:
    return f"admin-{uuid.uuid4().hex[:12]}"


def create(connection: Connection, *topics: dict[str, Any], version: int = 7) -> Any:
    base = {"num_partitions": 1, "replication_factor": 1}
    asked = [{**base, **topic} for topic in topics]
    return connection.ask("create_topics", version, topics=asked, timeout=10_000).topics


def describe(connection: Connection, topic: str, keys: list[str] | None) -> Any:
    asked = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": keys}
    (answer,) = connection.ask("describe_configs", 4, resources=[asked]).results
    return answer


def alter(connection: Connection, topic: str, key: str, value: str, operation: int = 0) -> Any:
    change = {"name": key, "config_operation": operation, "value": value}
    asked = {"resource_type": TOPIC, "resource_name": topic, "configs": [change]}
    (answer,) = connection.ask("incremental_alter_configs", 1, resources=[asked]).responses
    return answer.error_code


@pytest.mark.parametrize("version", [2, 5, 7])
def test_a_created_topic_has_no_error_message(connection: Connection, version: int) -> None:
    (answer,) = create(connection, {"name": new_name()}, version=version)
    assert (answer.error_code, answer.error_message) == (NONE, None)


def test_a_refused_topic_has_a_message_and_no_configs(connection: Connection) -> None:
    (answer,) = create(connection, {"name": "a b"})
    assert answer.error_code == ErrorCode.invalid_topic_exception
    assert answer.error_message
    assert answer.configs == ()


def test_of_a_config_given_twice_the_last_value_counts(connection: Connection) -> None:
    name = new_name()
    twice = [{"name": "retention.ms", "value": value} for value in ("1000000", "2000000")]
    (answer,) = create(connection, {"name": name, "configs": twice})
    assert answer.error_code == NONE
    assert {e.name: e.value for e in answer.configs}["retention.ms"] == "2000000"


def test_a_topic_to_be_deleted_twice_is_answered_once(
    connection: Connection, topic: NewTopic
) -> None:
    name = topic()
    known = {"topic_id": topic_id(connection, name), "name": None}
    for asked in ([{"name": name}] * 2, [{"name": "no-such"}] * 2, [known] * 2):
        (answer,) = connection.ask("delete_topics", 6, topics=asked, timeout=10_000).responses
        assert answer.error_code == ErrorCode.invalid_request
    assert name in {each.name for each in metadata(connection).topics}


def test_a_topic_to_grow_twice_is_answered_once(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    asked = [{"name": name, "count": count, "assignments": None} for count in (2, 3)]
    (answer,) = connection.ask("create_partitions", 3, topics=asked, timeout=10_000).results
    assert answer.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize("version", [0, 8, 12])
def test_metadata_of_a_topic_asked_for_twice_comes_once(
    connection: Connection, topic: NewTopic, version: int
) -> None:
    name = topic()
    (found,) = metadata(connection, name, name, version=version).topics
    assert (found.name, found.error_code) == (name, NONE)


def test_metadata_by_id_ignores_the_name(connection: Connection, topic: NewTopic) -> None:
    name, other = topic(), topic()
    known = topic_id(connection, name)
    asked = [{"topic_id": known, "name": other}]
    (found,) = connection.ask("metadata", 12, topics=asked).topics
    assert (found.name, found.error_code) == (name, NONE)
    asked = [{"topic_id": uuid.uuid4(), "name": other}]
    (found,) = connection.ask("metadata", 12, topics=asked).topics
    assert (found.name, found.error_code) == (None, ErrorCode.unknown_topic_id)


@pytest.mark.parametrize("asks", [True, False])
def test_metadata_tells_what_a_client_may_do(
    connection: Connection, topic: NewTopic, asks: bool
) -> None:
    asked = {
        "topics": [{"name": topic()}, {"name": "no-such-topic"}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": asks,
        "include_topic_authorized_operations": asks,
    }
    for version in (8, 10, 12):
        answer = connection.ask("metadata", version, **asked)
        allowed = {each.topic_authorized_operations for each in answer.topics}
        assert allowed == {ON_TOPIC if asks else NOT_ASKED}
        if version <= 10:
            assert answer.cluster_authorized_operations == (ON_CLUSTER if asks else NOT_ASKED)


@pytest.mark.parametrize("asks", [True, False])
def test_describe_cluster_tells_what_a_client_may_do(connection: Connection, asks: bool) -> None:
    asked = {"include_cluster_authorized_operations": asks, "endpoint_type": 1}
    answer = connection.ask("describe_cluster", 1, **asked)
    assert answer.cluster_authorized_operations == (ON_CLUSTER if asks else NOT_ASKED)


def test_described_topic_partitions_come_with_what_a_client_may_do(
    connection: Connection, topic: NewTopic
) -> None:
    asked = {"topics": [{"name": topic()}], "response_partition_limit": 10}
    (found,) = connection.ask("describe_topic_partitions", 0, **asked).topics
    assert found.topic_authorized_operations == ON_TOPIC


@pytest.mark.groups
@pytest.mark.parametrize("asks", [True, False])
def test_described_groups_come_with_what_a_client_may_do(
    connection: Connection, asks: bool
) -> None:
    """A group that is not there is dead up to version 5, and an error without them since."""
    group = new_name()

    def described(version: int) -> tuple[ErrorCode, int]:
        connection.ask("find_coordinator", 3, key=group)  # Kafka makes its topic then
        asked = {"groups": [group], "include_authorized_operations": asks}
        (found,) = connection.ask("describe_groups", version, **asked).groups
        return found.error_code, found.authorized_operations

    assert eventually(lambda: described(5) == (NONE, ON_GROUP if asks else NOT_ASKED))
    assert described(6) == (ErrorCode.group_id_not_found, NOT_ASKED)


@pytest.mark.groups
def test_a_coordinator_that_is_found_comes_with_an_empty_message(connection: Connection) -> None:
    def message() -> str | None:
        answer = connection.ask("find_coordinator", 4, coordinator_keys=["g"])
        return None if answer.coordinators[0].error_code else answer.coordinators[0].error_message

    assert eventually(lambda: message() == "")
    assert connection.ask("find_coordinator", 3, key="g").error_message == "NONE"


def test_no_keys_asked_for_are_all_keys(connection: Connection, topic: NewTopic) -> None:
    name = topic()
    everything = {each.name for each in describe(connection, name, None).configs}
    assert "retention.ms" in everything
    assert {each.name for each in describe(connection, name, []).configs} == everything


def test_a_key_asked_for_twice_is_described_once(connection: Connection, topic: NewTopic) -> None:
    answer = describe(connection, topic(), ["retention.ms", "retention.ms"])
    assert (answer.error_code, answer.error_message) == (NONE, "")
    assert [each.name for each in answer.configs] == ["retention.ms"]


def test_a_topic_without_a_name_has_no_configs_to_alter(connection: Connection) -> None:
    assert alter(connection, "", "retention.ms", "1000") == ErrorCode.invalid_request


@pytest.mark.parametrize("version", [1, 7, 10])
@pytest.mark.parametrize("timestamp", [-7, -100])
def test_an_unknown_special_timestamp_is_refused(
    connection: Connection, topic: NewTopic, version: int, timestamp: int
) -> None:
    for name in (topic(), "no-such-topic"):
        answer = list_offset(connection, name, timestamp, version=version)
        assert (answer.error_code, answer.offset) == (ErrorCode.unsupported_version, -1)


def test_the_start_of_an_empty_partition_has_the_leaders_epoch(
    connection: Connection, topic: NewTopic
) -> None:
    answer = list_offset(connection, topic(), -2)
    assert (answer.offset, answer.leader_epoch) == (0, 0)


@pytest.mark.parametrize("given", [(5, -1), (-1, 3)])
def test_a_producer_id_and_its_epoch_are_given_together(
    connection: Connection, given: tuple[int, int]
) -> None:
    new_producer_id(connection)
    asked = {"transaction_timeout": 60_000, "producer_id": given[0], "producer_epoch": given[1]}
    answer = connection.ask("init_producer_id", 4, **asked)
    assert answer.error_code == ErrorCode.invalid_request
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_an_empty_transactional_id_is_refused(connection: Connection) -> None:
    asked = {"transaction_timeout": 60_000, "transactional_id": ""}
    for version in (0, 2):
        answer = connection.ask("init_producer_id", version, **asked)
        assert answer.error_code == ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (0, ErrorCode.unsupported_endpoint_type),
        (2, ErrorCode.mismatched_endpoint_type),
        (3, ErrorCode.unsupported_endpoint_type),
    ],
)
def test_only_brokers_are_described_by_a_broker(
    connection: Connection, kind: int, code: ErrorCode
) -> None:
    answer = connection.ask("describe_cluster", 1, endpoint_type=kind)
    assert answer.error_code == code


def test_producers_of_an_illegal_topic_are_refused_by_its_name(connection: Connection) -> None:
    asked = [{"name": "a b", "partition_indexes": [0]}]
    (found,) = connection.ask("describe_producers", 0, topics=asked).topics
    assert found.partitions[0].error_code == ErrorCode.invalid_topic_exception
