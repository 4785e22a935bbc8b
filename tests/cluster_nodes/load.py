"""Real clients under faults: what was acknowledged, and whether it can be read back."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, Self

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition

PAUSE_S = 0.001
"""Between two records: enough load to have some in flight at any moment, not to fill a core."""

CLIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "socket.timeout.ms": 4000,
    "request.timeout.ms": 3000,
    "topic.metadata.refresh.interval.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,
}


class Load:
    """A producer that never rests, idempotent with acks=all; `acked` maps n to its place.

    The offset is None where the client only learned that the record is there.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int | Sequence[int],
        acks: str = "all",
        name: bytes = b"",
        padding: bytes = b"",
    ) -> None:
        config = {**CLIENT, "bootstrap.servers": bootstrap, "linger.ms": 1, "acks": acks}
        self._producer = Producer(
            {**config, "enable.idempotence": acks == "all", "message.timeout.ms": 60_000}
        )
        self.name = name
        """What its values begin with, so that several can share a topic."""
        self._padding = padding
        self._topic = topic
        self._partitions = range(partitions) if isinstance(partitions, int) else partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acked: dict[int, tuple[int, int | None]] = {}
        self.failed: list[str] = []
        self.ack_times: dict[int, list[float]] = defaultdict(list)
        self.sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert left == 0, f"{left} records have no fate"

    def _run(self) -> None:
        while not self._stop.is_set():
            n, self.sent = self.sent, self.sent + 1
            try:
                self._producer.produce(
                    self._topic,
                    b"%s%d%s" % (self.name, n, self._padding),
                    partition=self._partitions[n % len(self._partitions)],
                    on_delivery=partial(self._delivered, n),
                )
            except BufferError:
                self.sent = n
                self._producer.poll(0.05)
            self._producer.poll(0)
            time.sleep(PAUSE_S)

    def _delivered(self, n: int, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.acked[n] = (message.partition(), message.offset())
        self.ack_times[message.partition()].append(time.monotonic())

    def number_in(self, value: bytes) -> int | None:
        """Which of its records it is; None if it is another's."""
        if not value.startswith(self.name):
            return None
        return int(value.removeprefix(self.name).removesuffix(self._padding))

    def longest_gap_s(self, partition: int, since: float = 0.0) -> float:
        """The longest time without an acknowledgement."""
        times = [one for one in self.ack_times[partition] if one >= since]
        return max((b - a for a, b in pairwise(times)), default=0.0)

    def first_ack_s(self, partition: int, since: float, seconds: float = 30) -> float:
        """Waits for the first acknowledgement after a moment; the seconds between them."""
        while True:
            times = [one for one in list(self.ack_times[partition]) if one > since]
            if times:
                return times[0] - since
            assert time.monotonic() - since < seconds, f"no ack on partition {partition}"
            time.sleep(0.005)

    def wait_acked(self, more: int, seconds: float = 30) -> float:
        """Returns once `more` further records are acknowledged."""
        began, goal = time.monotonic(), len(self.acked) + more
        while len(self.acked) < goal:
            assert time.monotonic() - began < seconds, f"{goal - len(self.acked)} acks are missing"
            time.sleep(0.005)
        return time.monotonic() - began


@contextmanager
def consumer(bootstrap: str, **config: Any) -> Iterator[Consumer]:
    made = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            **config,
        }
    )
    try:
        yield made
    finally:
        made.close()


def read_all(bootstrap: str, topic: str, ends: dict[int, int]) -> dict[tuple[int, int], bytes]:
    """Every record below the given ends; each offset is seen once."""
    found: dict[tuple[int, int], bytes] = {}
    with consumer(bootstrap) as reader:
        reader.assign([TopicPartition(topic, partition, 0) for partition in ends])
        left = {partition for partition, end in ends.items() if end > 0}
        limit = time.monotonic() + 60
        while left:
            assert time.monotonic() < limit, f"partitions {left} are not read to the end"
            messages: list[Any] = reader.consume(5000, 0.2)
            for message in messages:
                if message.error() is not None:
                    raise confluent_kafka.KafkaException(message.error())
                key = (message.partition(), message.offset())
                assert key not in found, f"{key} was delivered twice"
                found[key] = message.value()
                if message.offset() >= ends[message.partition()] - 1:
                    left.discard(message.partition())
    return found


def _is_at(found: tuple[int, int] | None, acked: tuple[int, int | None]) -> bool:
    return found is not None and (found == acked or (found[0], None) == acked)


def check_delivery(load: Load, found: dict[tuple[int, int], bytes]) -> None:
    """Every acknowledged record is there once, at its offset, in order; nothing is there twice."""
    assert not load.failed, load.failed[:3]
    places: dict[int, tuple[int, int]] = {}
    by_partition: dict[int, list[int]] = defaultdict(list)
    for place, value in sorted(found.items()):
        number = load.number_in(value)
        if number is not None:
            places[number] = place
            by_partition[place[0]].append(number)
    lost = [n for n, place in load.acked.items() if not _is_at(places.get(n), place)]
    assert not lost, f"{len(lost)} acknowledged records are lost, first {load.acked[lost[0]]}"
    for partition, numbers in by_partition.items():
        wrong = [pair for pair in pairwise(numbers) if pair[0] >= pair[1]]
        assert not wrong, f"partition {partition}: twice or out of order: {wrong[:5]}"
