"""Every consumer reads what every producer wrote, in every codec."""

import pytest
from tests.clients.conftest import CLIENTS
from tests.clients.kit import CODECS, Client, Codec, Record, payload
from tests.clients.scenarios import NewTopic

RECORDS = [Record(payload(n), key=b"key %d" % n, headers=(("h", b"v"),)) for n in range(20)]


@pytest.fixture
def producer(request: pytest.FixtureRequest) -> Client:
    found: Client = request.getfixturevalue(request.param.replace("-", "_"))
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("producer", CLIENTS, indirect=True)
def test_every_consumer_reads_it(
    producer: Client, codec: Codec, topic: NewTopic, request: pytest.FixtureRequest
) -> None:
    name = topic()
    producer.produce(name, RECORDS, codec=codec)
    expected = [(each.key, each.value, each.headers) for each in RECORDS]
    for library in CLIENTS:
        consumer: Client = request.getfixturevalue(library.replace("-", "_"))
        got = consumer.consume(name, len(RECORDS))
        assert [(each.key, each.value, each.headers) for each in got] == expected, library
