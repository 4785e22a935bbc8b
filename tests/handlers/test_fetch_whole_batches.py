"""A Fetch answer holds whole batches, and does not wait for what it could not hold (ADR 15)."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.clients.asking import NONE, append, fetch, leader_epoch
from tests.clients.batches import Batch
from tests.clients.wire import Connection

from chronik.embedded import embedded

NO_SESSION = {"session_id": 0, "session_epoch": -1}
WAIT_MS = 30_000
"""Longer than any machine needs to answer at once."""
SECONDS_MAX = 15
_names = (f"orders-{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with embedded() as broker:
        yield broker.port


@pytest.fixture
def connection(port: int) -> Iterator[Connection]:
    with Connection(port) as opened:
        yield opened


def filled(
    connection: Connection, value_bytes: int, count: int, **configs: str
) -> tuple[str, list[bytes]]:
    """A new topic and its batches as a consumer has to get them."""
    topic = next(_names)
    more = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
    asked = {"name": topic, "num_partitions": 1, "replication_factor": 1, "configs": more}
    answer = connection.ask("create_topics", 7, topics=[asked], timeout=10_000)
    assert answer.topics[0].error_code == NONE
    epoch = leader_epoch(connection, topic)
    made = []
    for offset in range(count):
        value = bytes([offset]) * value_bytes
        batch = Batch(values=[value], base_offset=offset, leader_epoch=epoch)
        append(connection, topic, batch)
        made.append(batch.encode())
    return topic, made


def read(connection: Connection, topic: str, offset: int, **more: Any) -> bytes:
    found = fetch(connection, topic, offset, **NO_SESSION, **more)
    assert found.error_code == NONE
    return bytes(found.records)


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
@pytest.mark.parametrize("value_bytes", [100, 10_000])
def test_a_limit_within_a_batch_ends_the_answer_before_it(
    connection: Connection, value_bytes: int, limit: str
) -> None:
    topic, made = filled(connection, value_bytes, 6)
    size = len(made[0])
    for first in (0, 2):
        for spare in (0, 1, size // 2, size - 1):
            assert read(connection, topic, first, **{limit: size + spare}) == made[first]
        assert read(connection, topic, first, **{limit: 3 * size - 1}) == b"".join(
            made[first : first + 2]
        )
        assert read(connection, topic, first, **{limit: 1}) == made[first], "else it never ends"


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
def test_a_fetch_that_cannot_hold_min_bytes_is_answered_at_once(
    connection: Connection, limit: str
) -> None:
    topic, made = filled(connection, 10_000, 6)
    size = len(made[0])
    start = time.monotonic()
    more = {limit: 3 * size - 1, "min_bytes": 2 * size + 1, "max_wait": WAIT_MS}
    assert read(connection, topic, 1, **more) == b"".join(made[1:3])
    assert time.monotonic() - start < SECONDS_MAX


def test_a_fetch_that_ends_with_an_old_segment_is_answered_at_once(connection: Connection) -> None:
    """One read is one segment: what follows comes with the next fetch, not later."""
    topic, made = filled(connection, 400_000, 5, segment_bytes="1048576")
    start = time.monotonic()
    for first, last in ((0, 2), (1, 2), (2, 4)):
        more = {"partition_max_bytes": 1 << 24, "min_bytes": 1_500_000, "max_wait": WAIT_MS}
        assert read(connection, topic, first, **more) == b"".join(made[first:last])
    assert time.monotonic() - start < SECONDS_MAX


def test_a_fetch_that_has_all_there_is_waits_for_min_bytes(connection: Connection) -> None:
    """Also with limits that are reached exactly."""
    topic, made = filled(connection, 10_000, 2)
    both = b"".join(made)
    start = time.monotonic()
    more = {"max_bytes": len(both), "min_bytes": len(both) + 1, "max_wait": 300}
    assert read(connection, topic, 0, **more) == both
    assert time.monotonic() - start >= 0.28
