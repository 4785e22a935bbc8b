"""Fetch answers on their way to a slow client, whatever becomes of the topic or the node."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.clients.asking import NONE, append, partitions_of, topic_id
from tests.clients.batches import Batch
from tests.clients.wire import Connection, ConnectionClosedError

from chronik.embedded import embedded

VERSION = 13
VALUE_BYTES = 900_000
BATCHES = 4
PIPELINED = 12
"""Answers that are more than the sockets take together."""


def fill(connection: Connection, topic: str, letter: bytes) -> tuple[dict[str, Any], bytes]:
    """Creates the topic; returns the question for all of it by topic id, and its records."""
    asked = {"name": topic, "num_partitions": 1, "replication_factor": 1}
    answer = connection.ask("create_topics", 7, topics=[asked], timeout=10_000)
    assert answer.topics[0].error_code == NONE
    for _ in range(BATCHES):
        append(connection, topic, Batch(values=[letter * VALUE_BYTES]))
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 24}
    topics = [{"topic_id": topic_id(connection, topic), "partitions": [part]}]
    question = {"max_bytes": 1 << 24, "topics": topics}
    records = partitions_of(connection.ask("fetch", VERSION, **question))[0].records
    assert records.count(letter * VALUE_BYTES) == BATCHES
    return question, records


def test_answers_under_way_are_those_of_the_topic_that_was_read() -> None:
    with embedded() as broker, Connection(broker.port) as slow, Connection(broker.port) as other:
        question, first = fill(other, "orders", b"a")
        ids = [slow.send("fetch", VERSION, **question) for _ in range(PIPELINED)]
        answers = [slow.read("fetch", VERSION, ids[0])]
        deleted = other.ask("delete_topics", 5, topic_names=["orders"], timeout=10_000)
        assert deleted.responses[0].error_code == NONE
        fill(other, "orders", b"b")
        answers += [slow.read("fetch", VERSION, each) for each in ids[1:]]
    for found in [partitions_of(answer)[0] for answer in answers]:
        # A fetch may have had its turn only after the deletion.
        late = found.error_code == ErrorCode.unknown_topic_id
        assert late or (found.error_code, found.records) == (NONE, first)


@pytest.mark.filterwarnings("ignore:unclosed resource <TCPTransport:ResourceWarning")
def test_a_node_that_stops_ends_the_connection_of_a_slow_client() -> None:
    with embedded() as broker:
        slow = Connection(broker.port)
        question, first = fill(slow, "orders", b"a")
        ids = [slow.send("fetch", VERSION, **question) for _ in range(PIPELINED)]
        assert partitions_of(slow.read("fetch", VERSION, ids[0]))[0].records == first
    with slow, pytest.raises(ConnectionClosedError):
        read_all(slow, ids[1:], first)


def read_all(connection: Connection, ids: list[int], expected: bytes) -> None:
    for each in ids:
        assert partitions_of(connection.read("fetch", VERSION, each))[0].records == expected
