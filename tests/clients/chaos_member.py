"""A group member as a process: `chaos_member.py LIBRARY STRATEGY BOOTSTRAP GROUP TOPIC FILE`.

Appends one line `generation partition offset` to FILE per record that it processed, before it
commits; SIGTERM makes it leave. The generation is the one of its last assignment.
"""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from typing_extensions import override

SESSION_MS: Final = 1_500
HEARTBEAT_MS: Final = 300
POLL_INTERVAL_MS_MAX: Final = 15_000
RECORDS_PER_COMMIT: Final = 50
EAGER, COOPERATIVE = "roundrobin", "cooperative-sticky"
SPEAKS: Final = {
    EAGER: ("confluent", "kafka-python", "aiokafka"),
    COOPERATIVE: ("confluent", "kafka-python"),
}
"""The libraries that know a strategy; all members of a group must."""


class Ledger:
    """What this member did; unbuffered, so that a killed member's last lines are there."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.generation = -1

    def processed(self, records: Iterable[tuple[int, int]]) -> None:
        """Partition and offset of each record."""
        lines = "".join(f"{self.generation} {part} {offset}\n" for part, offset in records)
        os.write(self._file, lines.encode())


class Stop:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


class GenerationLog(logging.Handler):
    """librdkafka tells the generation only in its debug log."""

    pattern = re.compile(r"JoinGroup response: GenerationId (\d+)")

    def __init__(self) -> None:
        super().__init__()
        self.generation = -1

    @override
    def emit(self, record: logging.LogRecord) -> None:
        found = self.pattern.search(record.getMessage())
        if found:
            self.generation = int(found[1])


def run_confluent(strategy: str, bootstrap: str, group: str, topic: str, ledger: Ledger) -> None:
    from confluent_kafka import Consumer

    stop, seen = Stop(), GenerationLog()
    logger = logging.getLogger("rdkafka")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(seen)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "partition.assignment.strategy": strategy,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "max.poll.interval.ms": POLL_INTERVAL_MS_MAX,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "debug": "cgrp",
    }
    consumer = Consumer(settings, logger=logger)

    def assigned(*_: object) -> None:
        ledger.generation = seen.generation

    consumer.subscribe([topic], on_assign=assigned)
    uncommitted = 0
    while not stop.asked:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            ledger.processed([(partition, offset)])
            uncommitted += 1
        if uncommitted and (message is None or uncommitted >= RECORDS_PER_COMMIT):
            commit_or_not(lambda: consumer.commit(asynchronous=False))
            uncommitted = 0
    consumer.close()


def run_kafka_python(strategy: str, bootstrap: str, group: str, topic: str, ledger: Ledger) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    stop = Stop()
    cooperative = strategy == COOPERATIVE
    assignor = CooperativeStickyAssignor if cooperative else RoundRobinPartitionAssignor
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        partition_assignment_strategy=[assignor],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=POLL_INTERVAL_MS_MAX,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            pass

        def on_partitions_assigned(self, assigned: object) -> None:
            ledger.generation = consumer.group_metadata().generation_id

    consumer.subscribe([topic], listener=Listener())
    while not stop.asked:
        polled = consumer.poll(timeout_ms=100, max_records=RECORDS_PER_COMMIT)
        ledger.processed((one.partition, one.offset) for part in polled.values() for one in part)
        if polled:
            commit_or_not(consumer.commit)
    consumer.close(autocommit=False)


def run_aiokafka(strategy: str, bootstrap: str, group: str, topic: str, ledger: Ledger) -> None:
    assert strategy == EAGER, "aiokafka has no cooperative assignor"
    asyncio.run(_run_aiokafka(bootstrap, group, topic, ledger))


async def _run_aiokafka(bootstrap: str, group: str, topic: str, ledger: Ledger) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    stop = Stop()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=POLL_INTERVAL_MS_MAX,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            pass

        def on_partitions_assigned(self, assigned: object) -> None:
            ledger.generation = consumer._coordinator.generation

    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not stop.asked:
        polled = await consumer.getmany(timeout_ms=100, max_records=RECORDS_PER_COMMIT)
        ledger.processed((one.partition, one.offset) for part in polled.values() for one in part)
        try:
            if polled:
                await consumer.commit()
        except KafkaError as error:
            refused(error)
    await consumer.stop()


def commit_or_not(commit: Callable[[], Any]) -> None:
    """Commits; where that is refused the records come again."""
    from confluent_kafka import KafkaException
    from kafka.errors import KafkaError

    try:
        commit()
    except (KafkaException, KafkaError) as error:
        refused(error)


def refused(error: Exception) -> None:
    """No accident here: the group moved on."""
    sys.stderr.write(f"{error!r}\n")


LIBRARIES: Final[dict[str, Callable[..., None]]] = {
    "confluent": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
}

if __name__ == "__main__":
    library, *more, path = sys.argv[1:]
    LIBRARIES[library](*more, Ledger(path))
