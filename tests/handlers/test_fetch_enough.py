"""A Fetch answer that has enough leaves the other partitions to the next one (ADR 15)."""

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.clients.asking import NONE, append, fetch_fields, leader_epoch, partitions_of
from tests.clients.batches import Batch, headers
from tests.clients.wire import Connection

from chronik.embedded import embedded
from chronik.model import limits
from chronik.net import connection

VERSION = 12
NO_SESSION = {"session_id": 0, "session_epoch": -1}
TOPIC, PARTITIONS, BATCHES = "orders", 4, 16
VALUE_BYTES = 120_000
AT_ONCE = 8
"""Batches of a partition in the MiB that clients ask for: more than enough for an answer."""
TWO_BATCHES = 250_000
"""Bytes of a partition: enough is reached with the third one."""
Made = dict[int, list[bytes]]


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[int, Made]]:
    """The port of a broker, and the batches of each partition as a consumer has to get them."""
    rng = random.Random(5)
    made: Made = {number: [] for number in range(PARTITIONS)}
    with embedded() as broker, Connection(broker.port) as client:
        create(client, TOPIC, PARTITIONS)
        epoch = leader_epoch(client, TOPIC)
        for number, batches in made.items():
            for offset in range(BATCHES):
                value = rng.randbytes(VALUE_BYTES)
                batch = Batch(values=[value], base_offset=offset, leader_epoch=epoch)
                append(client, TOPIC, batch, number)
                batches.append(batch.encode())
        yield broker.port, made


@pytest.fixture
def made(filled: tuple[int, Made]) -> Made:
    return filled[1]


@pytest.fixture
def near(filled: tuple[int, Made], monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """A connection of a near client, however long its handshake took on a busy machine."""
    monkeypatch.setattr(limits, "FETCH_BYTES_PER_ROUND_TRIP_US", 0)
    with Connection(filled[0]) as opened:
        yield opened


@pytest.fixture
def far(filled: tuple[int, Made], monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(connection, "round_trip_us", lambda _: 50_000)
    with Connection(filled[0]) as opened:
        yield opened


def create(client: Connection, topic: str, partitions: int) -> None:
    asked = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
    answer = client.ask("create_topics", 7, topics=[asked], timeout=10_000)
    assert answer.topics[0].error_code == NONE


def counts(client: Connection, **more: Any) -> list[int]:
    """How many batches of each partition are in an answer about all, from the beginning."""
    fields = fetch_fields(TOPIC, dict.fromkeys(range(PARTITIONS), 0), **NO_SESSION, **more)
    found = partitions_of(client.ask("fetch", VERSION, **fields))
    assert {one.error_code for one in found.values()} == {NONE}
    return [len(headers(found[number].records)) for number in range(PARTITIONS)]


class Reader:
    """A consumer of all partitions that asks on from what it has."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)
        self._session = self._epoch = 0
        self._changed = list(self._offsets)
        self._order = list(self._offsets)
        self.got = dict.fromkeys(range(PARTITIONS), b"")

    def in_a_session(self) -> list[int]:
        """The partitions whose records came; only those that moved are named."""
        fields = {"session_id": self._session, "session_epoch": self._epoch}
        answer = self._ask(self._changed, fields)
        self._session, self._epoch = answer.session_id, self._epoch + 1
        self._changed = self._taken(answer)
        return self._changed

    def in_another_order_each_time(self) -> list[int]:
        answer = self._ask(self._order, NO_SESSION)
        self._order = self._order[1:] + self._order[:1]
        return self._taken(answer)

    def _ask(self, numbers: list[int], session: dict[str, int]) -> Any:
        offsets = {number: self._offsets[number] for number in numbers}
        return self._client.ask("fetch", VERSION, **fetch_fields(TOPIC, offsets, **session))

    def _taken(self, answer: Any) -> list[int]:
        assert answer.error_code == NONE
        taken = []
        for number, found in partitions_of(answer).items():
            assert (found.error_code, found.high_watermark) == (NONE, BATCHES)
            if found.records:
                self.got[number] += found.records
                self._offsets[number] += len(headers(found.records))
                taken.append(number)
        return taken


def test_a_near_client_gets_a_whole_part_of_one_partition(near: Connection, made: Made) -> None:
    fields = fetch_fields(TOPIC, {2: 0, 0: 0, 1: 3, 3: 0}, **NO_SESSION)
    found = partitions_of(near.ask("fetch", VERSION, **fields))
    assert found[2].records == b"".join(made[2][:AT_ONCE])
    for number in (0, 1, 3):
        told = found[number]
        assert (told.error_code, told.records, told.high_watermark) == (NONE, b"", BATCHES)


def test_it_is_filled_up_until_it_has_enough(near: Connection) -> None:
    assert counts(near, partition_max_bytes=TWO_BATCHES) == [2, 2, 2, 0]


def test_a_client_far_away_gets_a_part_of_each_partition(far: Connection) -> None:
    assert counts(far) == [AT_ONCE] * PARTITIONS


@pytest.mark.parametrize("how", [Reader.in_a_session, Reader.in_another_order_each_time])
def test_every_partition_has_its_turn_though_all_have_more(
    near: Connection, made: Made, how: Any
) -> None:
    reader = Reader(near)
    taken = [how(reader) for _ in range(PARTITIONS * BATCHES // AT_ONCE)]
    assert sorted(taken[:PARTITIONS]) == [[0], [1], [2], [3]], "one each time, each of them once"
    assert reader.got == {number: b"".join(batches) for number, batches in made.items()}


def test_a_full_answer_tells_what_is_wrong_with_the_others(near: Connection) -> None:
    fields = fetch_fields(TOPIC, {0: 0, 1: BATCHES + 1, 2: BATCHES}, **NO_SESSION)
    found = partitions_of(near.ask("fetch", VERSION, **fields))
    codes = {number: one.error_code for number, one in found.items()}
    assert codes == {0: NONE, 1: ErrorCode.offset_out_of_range, 2: NONE}
    assert len(headers(found[0].records)) == AT_ONCE


def test_no_room_at_all_is_room_for_one_batch(near: Connection) -> None:
    assert counts(near, max_bytes=0) == [1, 0, 0, 0]


# ---- min_bytes


def test_nobody_waits_for_what_the_answer_has_no_room_for(near: Connection) -> None:
    create(near, "few", 2)
    batch = Batch(values=[b"v"])
    for number in (0, 1):
        append(near, "few", batch, number)
    more = {"max_wait": 30_000, "min_bytes": 1 << 20, "max_bytes": len(batch.encode())}
    fields = fetch_fields("few", {0: 0, 1: 0}, **more, **NO_SESSION)
    began = time.monotonic()
    found = partitions_of(near.ask("fetch", VERSION, **fields))
    assert [len(headers(found[number].records)) for number in (0, 1)] == [1, 0]
    assert time.monotonic() - began < 15, "it was answered at once"


def test_it_is_filled_up_to_what_the_client_wants_at_least(near: Connection) -> None:
    least = 3 * TWO_BATCHES
    more = {"partition_max_bytes": TWO_BATCHES, "min_bytes": least, "max_wait": 15_000}
    assert counts(near, **more) == [2, 2, 2, 2]


def test_a_client_that_wants_more_than_enough_waits_for_it(
    near: Connection, filled: tuple[int, Made]
) -> None:
    create(near, "late", 2)
    for _ in range(5):
        append(near, "late", Batch(values=[bytes(VALUE_BYTES)]))
    least = 6 * VALUE_BYTES
    fields = fetch_fields("late", {0: 0, 1: 0}, max_wait=15_000, min_bytes=least, **NO_SESSION)
    waiting = near.send("fetch", VERSION, **fields)
    with Connection(filled[0]) as other:
        append(other, "late", Batch(values=[bytes(VALUE_BYTES)]), partition=1)
    found = partitions_of(near.read("fetch", VERSION, waiting))
    assert [len(headers(found[number].records)) for number in (0, 1)] == [5, 1]
