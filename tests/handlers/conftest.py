"""A server for the group tests: embedded, or Apache Kafka with `--server kafka`."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.clients.wire import Connection
from tests.handlers.group_kit import NONE, NewConnection, wait_for_coordinator

from chronik.embedded import embedded


@pytest.fixture(scope="module")
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.config.getoption("--server") == "kafka":
        yield request.getfixturevalue("server").port
        return
    with embedded(configs={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker.port


@pytest.fixture
def connect(port: int) -> Iterator[NewConnection]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Connection(port))


@pytest.fixture
def ask(connect: NewConnection) -> Callable[..., Any]:
    return connect().ask


@pytest.fixture
def group(connect: NewConnection) -> str:
    """A name nobody used, once its coordinator answers."""
    name = f"g-{uuid.uuid4().hex[:12]}"
    wait_for_coordinator(connect(), name)
    return name


@pytest.fixture
def topic(connect: NewConnection) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    asked = {"name": name, "num_partitions": 2, "replication_factor": 1}
    answer = connect().ask("create_topics", 7, topics=[asked], timeout=10_000)
    assert answer.topics[0].error_code == NONE
    return name
