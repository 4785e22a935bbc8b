"""What a client was promised still holds after a restart and after a crash of the process."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests import servers
from tests.clients.adapters.confluent import Confluent, ConfluentAdmin
from tests.clients.asking import NONE, list_offset, metadata, new_producer_id, produce
from tests.clients.batches import Batch
from tests.clients.kit import Record, eventually, payload
from tests.clients.topics import TopicMaker
from tests.clients.wire import Connection, ConnectionClosedError


@pytest.fixture(scope="module")
def own(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[servers.Server]:
    """A server that these tests may end; each leaves it running."""
    name = request.config.getoption("--server")
    with servers.serving(name, tmp_path_factory.mktemp("own")) as started:
        yield started


def numbered(producer: int) -> bytes:
    """A producer's first batch, of now: a producer silent for a day is forgotten."""
    now_ms = int(time.time() * 1000)
    batch = Batch(values=[b"v"], producer_id=producer, producer_epoch=0, sequence=0, time_ms=now_ms)
    return batch.encode()


def served(server: servers.Server, topic: str) -> bool:
    with Connection(server.port) as connection:
        return bool(list_offset(connection, topic, -1).error_code == NONE)


def test_records_topics_and_sequences_survive(own: servers.Server) -> None:
    topic = TopicMaker(own.bootstrap)(partitions=2, **{"retention.ms": 123_000_000_000})
    client = Confluent(own.bootstrap)
    client.produce(topic, [Record(payload(n)) for n in range(20)], codec="lz4")
    ConfluentAdmin(own.bootstrap).delete_records(topic, 5)
    with Connection(own.port) as connection:
        producer = new_producer_id(connection)
        first = numbered(producer)
        assert produce(connection, topic, {1: first})[1].error_code == NONE
    client.close()

    own.restart()
    check(own, topic, start=5)
    with Connection(own.port) as connection:
        again = produce(connection, topic, {1: first})[1]
        assert (again.error_code, again.base_offset) == (NONE, 0)

    own.kill()
    own.start()
    check(own, topic, start=5)
    assert ConfluentAdmin(own.bootstrap).config(topic)["retention.ms"] == "123000000000"


def test_fm36_the_first_answer_after_a_start_names_broker_and_leader(own: servers.Server) -> None:
    """A client that is told of no broker gives up, or asks again only much later."""
    topic = TopicMaker(own.bootstrap)()
    own.kill()
    own.launch()
    answer = first_answer(own, topic)
    assert [f"{each.host}:{each.port}" for each in answer.brokers] == [own.bootstrap]
    assert answer.controller_id == answer.brokers[0].node_id
    assert answer.topics[0].error_code == NONE
    assert answer.topics[0].partitions[0].leader_id == answer.controller_id


def first_answer(server: servers.Server, topic: str) -> Any:
    """The first Metadata answer of a server that is starting."""
    limit = time.monotonic() + servers.START_SECONDS_MAX
    while time.monotonic() < limit:
        try:
            with Connection(server.port) as connection:
                return metadata(connection, topic)
        except (OSError, ConnectionClosedError):
            time.sleep(0.001)
    raise TimeoutError


def check(server: servers.Server, topic: str, start: int) -> None:
    assert eventually(lambda: served(server, topic))
    client = Confluent(server.bootstrap)
    assert client.offsets(topic) == (start, 20)
    got = client.consume(topic, 20 - start, start=start)
    assert [each.value for each in got] == [payload(n) for n in range(start, 20)]
    client.close()
