"""One adapter of each client library per session."""

from collections.abc import Iterator

import pytest
from tests.clients.adapters.aio import AioKafka
from tests.clients.adapters.confluent import Confluent
from tests.clients.adapters.java import Java, JavaClient
from tests.clients.adapters.kafka_python import KafkaPython
from tests.clients.adapters.kcat import Kcat
from tests.clients.kit import Client
from tests.clients.wire import Connection
from tests.servers import Server, kafka_libs, require

CLIENTS = ("confluent", "kafka-python", "aiokafka", "java", "kcat")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "clients" in item.path.parts:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def confluent(server: Server) -> Iterator[Client]:
    client = Confluent(server.bootstrap)
    yield client
    client.close()


@pytest.fixture(scope="session")
def kafka_python(server: Server) -> Iterator[Client]:
    client = KafkaPython(server.bootstrap)
    yield client
    client.close()


@pytest.fixture(scope="session")
def aiokafka(server: Server) -> Client:
    return AioKafka(server.bootstrap)


@pytest.fixture(scope="session")
def kcat(server: Server) -> Client:
    require("kcat")
    return Kcat(server.bootstrap)


@pytest.fixture(scope="session")
def jvm(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    kafka_libs()
    require("javac")
    java = Java(server.bootstrap, tmp_path_factory.mktemp("java"))
    yield java
    java.close()


@pytest.fixture(scope="session")
def java(jvm: Java, server: Server) -> Client:
    return JavaClient(jvm, server.bootstrap)


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    """A bare protocol connection."""
    with Connection(server.port) as opened:
        yield opened
