"""kill -9 under load, again and again: what was acked is read back once, in order, unchanged."""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.faults.nodes import Client, produce_request, run, wait_until
from tests.rounds import Rounds
from tests.servers import Chronik

from chronik.model.errors import ErrorCode

pytestmark = pytest.mark.integration

PARTITIONS = 3
SHORT_CYCLES = 5
LONG_CYCLES = 25
SEEDS = (11, 12)
"""Per durability and kind of producer: 200 kills in all."""
PRODUCERS: dict[str, dict[str, object]] = {
    "idempotent": {"enable.idempotence": True, "acks": "all"},
    # Without sequence numbers a retry may double what was written but not acknowledged.
    "acks=1": {"acks": 1, "retries": 0},
}


@dataclass
class Ledger:
    """What one partition's producer was told: acked with an offset, or unknown."""

    acked: dict[int, int] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)


class Sender(threading.Thread):
    """A producer that numbers its records per partition."""

    def __init__(self, bootstrap: str, topic: str, settings: dict[str, object]) -> None:
        super().__init__()
        self.ledgers = [Ledger() for _ in range(PARTITIONS)]
        self.stopped = threading.Event()
        self.acked = 0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                **settings,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "delivery.timeout.ms": 60_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        for number in range(100_000_000):
            if self.stopped.is_set():
                break
            for partition in range(PARTITIONS):
                self._send(partition, number)
            self._producer.poll(0.002)
        self._producer.flush(30)

    def _send(self, partition: int, number: int) -> None:
        def told(error: KafkaError | None, message: Message) -> None:
            ledger = self.ledgers[partition]
            if error is None:
                offset = message.offset()
                assert offset is not None
                ledger.acked[number] = offset
                self.acked += 1
            else:
                ledger.unknown.add(number)

        while True:
            try:
                self._producer.produce(
                    self._topic, value(partition, number), partition=partition, on_delivery=told
                )
            except BufferError:
                self._producer.poll(0.05)
            else:
                return


def value(partition: int, number: int) -> bytes:
    """Different for every record and long enough to notice a byte out of place."""
    return b"%d/%d/" % (partition, number) + bytes((number * 7 + n) % 256 for n in range(90))


def read_back(
    bootstrap: str, topic: str, partition: int, start: int = 0
) -> list[tuple[int, bytes]]:
    """Every (offset, value) of the partition from an offset on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        assert first == 0
        consumer.assign([TopicPartition(topic, partition, start)])
        found: list[tuple[int, bytes]] = []
        limit = time.monotonic() + 30
        while len(found) < end - start and time.monotonic() < limit:
            for message in consumer.consume(5000, timeout=0.5):
                assert message.error() is None, message.error()
                offset, data = message.offset(), message.value()
                assert offset is not None
                assert isinstance(data, bytes)
                found.append((offset, data))
        assert len(found) >= end - start
        return found
    finally:
        consumer.close()


def judge(ledger: Ledger, found: list[tuple[int, bytes]], partition: int) -> None:
    """Acked: there once, at the offset that was told. Unknown: at most once. Order: as sent."""
    assert [offset for offset, _ in found] == list(range(len(found)))
    numbers = [int(data.split(b"/", 2)[1]) for _, data in found]
    for (_, data), number in zip(found, numbers, strict=True):
        assert data == value(partition, number), "byte for byte"
    assert numbers == sorted(set(numbers)), "in order, each at most once"
    where = {number: offset for (offset, _), number in zip(found, numbers, strict=True)}
    lost = [number for number in ledger.acked if number not in where]
    assert lost == [], f"{len(lost)} acked records are lost"
    assert all(where[number] == offset for number, offset in ledger.acked.items())
    invented = set(where) - set(ledger.acked) - ledger.unknown
    assert invented == set(), "nothing that was not sent"


class Progress:
    """Reads what is new after each start: what was acked before is there, at its offset."""

    def __init__(self, bootstrap: str, sender: Sender) -> None:
        self._bootstrap = bootstrap
        self._sender = sender
        self._ends = [0] * PARTITIONS
        self.read = 0

    def check(self) -> None:
        for partition, ledger in enumerate(self._sender.ledgers):
            acked = ledger.acked.copy()  # before the read: later ones may come while it lasts
            start = self._ends[partition]
            found = read_back(self._bootstrap, "numbers", partition, start)
            assert [offset for offset, _ in found] == list(range(start, start + len(found)))
            values = dict(found)
            wrong = [
                number
                for number, offset in acked.items()
                if offset >= start and values.get(offset) != value(partition, number)
            ]
            assert wrong == [], f"{len(wrong)} acked records are lost or changed"
            self._ends[partition] = start + len(found)
            self.read += len(found)


@contextlib.contextmanager
def started(server: Chronik) -> Iterator[Chronik]:
    server.start()
    try:
        yield server
    finally:
        if server.running():
            server.kill()


def create(server: Chronik, topic: str, partitions: int = PARTITIONS, **configs: str) -> None:
    async def scenario() -> None:
        client = await Client.connect(server.port)
        assert await client.create(topic, partitions, **configs) == 0
        await client.close()

    run(scenario)


def kill_cycles(
    directory: Path, durability: str, cycles: int, seed: int, producer: str = "idempotent"
) -> None:
    rng = random.Random(seed)
    rounds = Rounds("kill", cycles, seed)
    with started(Chronik(directory, durability=durability)) as server:
        # Small segments: some kills hit a roll.
        create(server, "numbers", segment_bytes="1048576")
        sender = Sender(server.bootstrap, "numbers", PRODUCERS[producer])
        progress = Progress(server.bootstrap, sender)
        sender.start()
        try:
            for _ in range(cycles):
                acked = sender.acked
                wait_until(lambda acked=acked: sender.acked > acked + 50, 30)  # type: ignore[misc]
                time.sleep(rng.uniform(0, 0.3))
                server.kill()
                server.start()
                progress.check()
                done = f"kill -9 under load, {producer}, durability={durability}"
                rounds.told(done, acked=sender.acked, read=progress.read)
            acked = sender.acked
            wait_until(lambda: sender.acked > acked + 50, 30)
        finally:
            sender.stopped.set()
            sender.join()
        total = sum(len(ledger.acked) for ledger in sender.ledgers)
        unknown = sum(len(ledger.unknown) for ledger in sender.ledgers)
        assert total > 50 * cycles
        read = 0
        for partition, ledger in enumerate(sender.ledgers):
            found = read_back(server.bootstrap, "numbers", partition)
            judge(ledger, found, partition)
            read += len(found)
        assert "Traceback" not in server.log_path().read_text()
        assert "damaged" not in server.log_path().read_text()
        rounds.summary(acked=total, unknown=unknown, read=read)


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_fm70_kill_9_under_load_loses_and_doubles_nothing(tmp_path: Path, durability: str) -> None:
    kill_cycles(tmp_path, durability, SHORT_CYCLES, seed=7)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_fm70_two_hundred_kills_lose_and_double_nothing(
    tmp_path: Path, durability: str, producer: str, seed: int
) -> None:
    kill_cycles(tmp_path, durability, LONG_CYCLES, seed, producer)


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_fm58_a_deleted_topic_stays_deleted_through_kill_9(tmp_path: Path, durability: str) -> None:
    with started(Chronik(tmp_path, durability=durability)) as server:

        async def fill_and_delete() -> None:
            client = await Client.connect(server.port)
            await client.create("name", 2)
            for partition in (0, 1):
                await client.produce("name", b"old bytes" * 1000, partition=partition)
            assert await client.delete("name") == 0
            server.kill()
            await client.close()

        async def look() -> None:
            client = await Client.connect(server.port)
            assert [topic.name for topic in (await client.metadata()).topics] == []
            assert await client.create("name", 2) == 0
            assert (await client.fetch("name")).high_watermark == 0
            assert (await client.produce("name", b"new")).base_offset == 0
            server.kill()
            await client.close()

        async def look_again() -> None:
            client = await Client.connect(server.port)
            answer = await client.fetch("name")
            assert answer.high_watermark == 1
            assert b"old bytes" not in answer.records
            assert (await client.fetch("name", partition=1)).high_watermark == 0
            await client.close()

        run(fill_and_delete)
        server.start()
        topics = tmp_path / "data" / "topics"
        assert [path.name for path in topics.iterdir() if path.is_dir()] == []
        run(look)
        server.start()
        run(look_again)


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_fm27_deleted_records_stay_deleted_through_kill_9(tmp_path: Path, durability: str) -> None:
    with started(Chronik(tmp_path, durability=durability)) as server:

        async def delete() -> None:
            client = await Client.connect(server.port)
            await client.create("t")
            for number in range(10):
                await client.produce("t", b"%d" % number)
            assert (await client.delete_records("t", 6)).low_watermark == 6
            server.kill()
            await client.close()

        async def look() -> None:
            client = await Client.connect(server.port)
            assert (await client.fetch("t", 5)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            answer = await client.fetch("t", 6)
            assert (answer.log_start_offset, answer.high_watermark) == (6, 10)
            assert (await client.produce("t", b"on")).base_offset == 10
            await client.close()

        run(delete)
        server.start()
        run(look)


def test_fm72_a_batch_acked_before_kill_9_is_a_duplicate_after_it(tmp_path: Path) -> None:
    """The ack was lost with the connection: the retry gets the original offset."""
    with started(Chronik(tmp_path, durability="fsync")) as server:
        first = produce_request("t", b"a", producer_id=900, producer_epoch=0, sequence=0)
        second = produce_request("t", b"b", producer_id=900, producer_epoch=0, sequence=1)

        async def send(*requests: object) -> list[tuple[int, int]]:
            client = await Client.connect(server.port)
            answers = []
            for request in requests:
                answer = (await client.ask(request, 9)).responses[0]  # type: ignore[arg-type]
                partition = answer.partition_responses[0]
                answers.append((partition.error_code, partition.base_offset))
            await client.close()
            return answers

        create(server, "t", 1)
        assert run(lambda: send(first, second)) == [(0, 0), (0, 1)]
        server.kill()
        server.start()
        assert run(lambda: send(second, first, second)) == [(0, 1), (0, 0), (0, 1)]

        async def high_watermark() -> int:
            client = await Client.connect(server.port)
            answer = await client.fetch("t")
            await client.close()
            return int(answer.high_watermark)

        assert run(high_watermark) == 2


def test_fm74_producer_ids_are_new_after_kill_9(tmp_path: Path) -> None:
    from chronik.wire.messages.init_producer_id import InitProducerIdRequest

    async def some_ids(port: int) -> set[int]:
        client = await Client.connect(port)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        ids = {(await client.ask(request, 4)).producer_id for _ in range(20)}
        await client.close()
        return ids

    with started(Chronik(tmp_path)) as server:
        seen: set[int] = set()
        for _ in range(3):
            new = asyncio.run(some_ids(server.port))
            assert len(new) == 20
            assert not new & seen
            seen |= new
            server.kill()
            server.start()
