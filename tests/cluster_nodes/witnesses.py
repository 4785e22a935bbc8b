"""Who watches a cluster while it is broken: a reader that never stops, and all watermarks."""

import contextlib
import threading
import time
from typing import Any, Self

import confluent_kafka
from confluent_kafka import TopicPartition
from tests.cluster_nodes.kit import NODES, Cluster
from tests.cluster_nodes.load import consumer

POLL_S = 0.05


class _Witness:
    """A thread that looks until it is told to stop, and what it found wrong."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError


class Reader(_Witness):
    """Reads along, from the first record to the last: what it saw must stay."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._assigned = [TopicPartition(topic, one, 0) for one in range(partitions)]
        self.seen: dict[tuple[int, int], bytes] = {}

    def _run(self) -> None:
        with consumer(self._cluster.bootstrap) as reader:
            reader.assign(self._assigned)
            while not self._stop.is_set():
                for message in reader.consume(500, 0.1):
                    self._see(message)

    def _see(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            # A node that is gone is no news; an offset that is gone is.
            if (
                not error.retriable()
                and error.code() != confluent_kafka.KafkaError._ALL_BROKERS_DOWN
            ):
                self.wrong.append(str(error))
            return
        place, value = (message.partition(), message.offset()), message.value()
        if place in self.seen:
            self.wrong.append(f"{place} was delivered twice")
        self.seen[place] = value

    def check(self, found: dict[tuple[int, int], bytes], seconds: float = 20) -> None:
        """It was told nothing but what is there, and everything that is there."""
        limit = time.monotonic() + seconds
        while not found.keys() <= self.seen.keys() and not self.wrong:
            assert time.monotonic() < limit, f"{len(found.keys() - self.seen.keys())} never came"
            time.sleep(0.02)
        assert not self.wrong, self.wrong[:3]
        changed = [one for one in found if self.seen[one] != found[one]]
        assert not changed, f"records were replaced after they had been read: {changed[:3]}"


class Watermarks(_Witness):
    """Asks every node for every partition's end, all the time: it never moves back."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self.ends: dict[tuple[int, int], int] = {}
        self.asked = 0

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            for node in NODES:
                for partition in range(self._partitions):
                    with contextlib.suppress(OSError):
                        self._look(node, partition)

    def _look(self, node: int, partition: int) -> None:
        port = self._cluster.ports[node]
        end = self._cluster.end_offset(self._topic, partition, port, seconds=0.3)
        self.asked += 1
        before = self.ends.get((node, partition), 0)
        if end < before:
            self.wrong.append(f"node {node}, partition {partition}: {end} after {before}")
        self.ends[node, partition] = max(end, before)
