"""confluent-kafka (librdkafka) as an auditor's client: the fast one, and the one for topics."""

import contextlib
import logging
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from chronik.audit.clients import (
    ClientError,
    ConsumerSettings,
    Moved,
    Outgoing,
    Place,
    ProducerSettings,
    outcome_of,
    transient,
)
from chronik.audit.payload import sequences_of
from chronik.audit.record_log import Polled
from chronik.audit.rows import Outcome
from chronik.audit.send_log import SendLog

QUEUE_MESSAGES_MAX = 100_000
REQUEST_TIMEOUT_S = 15.0
_MESSAGE: Any = confluent_kafka.Message
_VALUE, _PARTITION, _OFFSET = _MESSAGE.value, _MESSAGE.partition, _MESSAGE.offset
"""Called by `map`, without a step of Python for each of millions of acks."""
_END = confluent_kafka.KafkaError._PARTITION_EOF


class Producer:
    """One callback for all records: a value names its own sequence, so none is bound to it."""

    def __init__(self, settings: ProducerSettings, log: SendLog) -> None:
        self._log, self._topic = log, settings.topic
        self._acked: list[Any] = []
        reports = {"on_delivery": self._callback(acks=settings.acks != "0")}
        self._client: Any = confluent_kafka.Producer(producer_config(settings) | reports)
        # A record that comes before the library knows its leader waits for a whole second there.
        with contextlib.suppress(confluent_kafka.KafkaException):
            self._client.list_topics(settings.topic, min(settings.timeout_s, REQUEST_TIMEOUT_S))

    def send(self, records: Sequence[Outgoing]) -> None:
        produce, topic = self._client.produce, self._topic
        for sequence, partition, key, value in records:
            while True:
                try:
                    place = -1 if partition is None else partition
                    produce(topic, value, key, place)
                    break
                except BufferError:
                    self._client.poll(0.05)
                    self._report()
                except confluent_kafka.KafkaException as error:
                    name = error.args[0].name()
                    self._log.ended(sequence, outcome_of(name), name)
                    break

    def drain(self, wait_s: float = 0.0) -> None:
        self._client.poll(wait_s)
        self._report()

    def settle(self, timeout_s: float) -> int:
        deadline = time.perf_counter() + timeout_s
        while len(self._client) and time.perf_counter() < deadline:
            self._client.poll(0.01)
            self._report()
        self._report()
        return len(self._client)

    def close(self, timeout_s: float) -> int:
        return self.settle(timeout_s)

    def _callback(self, *, acks: bool) -> Callable[[Any, Any], None]:
        """Called for every record: what it needs is bound once."""
        keep, failed = self._acked.append, self._failed

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                keep(message)
            else:
                failed(error, message)

        return delivered if acks else failed

    def _failed(self, error: Any, message: Any) -> None:
        """No offset is known: an error, or nobody was asked for an ack."""
        (sequence,) = sequences_of([message.value()])
        name = error.name() if error else "acks=0"
        self._log.ended(sequence, outcome_of(name), name, message.partition())

    def _report(self) -> None:
        messages = self._acked
        if messages:
            sequences = sequences_of([*map(_VALUE, messages)])
            partitions = [*map(_PARTITION, messages)]
            self._log.acked(sequences, partitions, _offsets(messages))
            messages.clear()


class TransactionalProducer(Producer):
    """The same in transactions; each has ended, or its end is unknown, before the next begins."""

    def __init__(self, settings: ProducerSettings, log: SendLog) -> None:
        super().__init__(settings, log)
        self._timeout_s = settings.timeout_s
        try:
            self._client.init_transactions(min(settings.timeout_s, REQUEST_TIMEOUT_S))
        except confluent_kafka.KafkaException as error:
            said = error.args[0].str()
            raise ClientError(f"this cluster does not serve transactions: {said}") from error

    def begin_transaction(self) -> None:
        self._client.begin_transaction()

    def end_transaction(self, *, commit: bool) -> tuple[Outcome, str]:
        """Flushed before the end, so that what is aborted has been in the log."""
        self.settle(self._timeout_s)
        ended = self._ending(self._client.commit_transaction) if commit else None
        if ended is None:
            ended = self._ending(self._client.abort_transaction) or (Outcome.INFO, "not aborted")
            if ended[0] == Outcome.OK:
                ended = (Outcome.FAIL, "aborted")
        self._report()
        return ended

    def _ending(self, end: Callable[[float], None]) -> tuple[Outcome, str] | None:
        """None says that the transaction has to be aborted."""
        deadline = time.perf_counter() + self._timeout_s
        while True:
            try:
                end(max(1.0, deadline - time.perf_counter()))
            except confluent_kafka.KafkaException as error:
                failure = error.args[0]
                if failure.txn_requires_abort():
                    return None
                if failure.fatal():
                    raise ClientError(f"the transactional producer: {failure.str()}") from error
                if not failure.retriable() or time.perf_counter() > deadline:
                    return Outcome.INFO, str(failure.name())
            else:
                return Outcome.OK, ""


class Consumer:
    """Assigned partitions from their beginning, or a group."""

    def __init__(self, settings: ConsumerSettings, moved: Moved) -> None:
        self._settings, self._moved = settings, moved
        self._start = -1 if settings.group else 0
        self._ends: dict[int, int] = {}
        self._assigned_now: set[int] = set()
        """Kept here: the library's own `assignment()` waits for its main thread without an end, and
        keeps all of Python from running while it waits."""
        self._client: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": settings.bootstrap,
                "group.id": settings.group or "chronik-audit",
                "enable.auto.commit": bool(settings.group),
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": settings.fetch_wait_ms,
                "enable.partition.eof": True,
                "log_level": 2,
            }
        )
        if settings.group:
            self._client.subscribe(
                [settings.topic], on_assign=self._assigned, on_revoke=self._revoked
            )
        else:
            places = [self._at(partition, 0) for partition in range(settings.partitions)]
            self._client.assign(places)
            for place in places:
                self._assigned_now.add(place.partition)
                moved("assign", place.partition, 0)

    def poll(self, timeout_s: float) -> list[Polled]:
        with transient(confluent_kafka.KafkaException):
            messages = self._client.consume(self._settings.poll_records_max, timeout_s)
        return [self._polled(message) for message in messages if self._is_record(message)]

    def _is_record(self, message: Any) -> bool:
        error, partition = message.error(), message.partition()
        if error is None:
            self._ends.pop(partition, None)
        elif error.code() == _END:
            self._ends[partition] = message.offset()
        return error is None

    def _polled(self, message: Any) -> Polled:
        place = (message.partition(), message.offset())
        return Polled(*place, message.key(), message.value(), _epoch(message))

    def places(self) -> dict[int, Place]:
        found = {}
        with transient(confluent_kafka.KafkaException):
            assigned = self._client.position(
                [self._at(partition, -1) for partition in sorted(self._assigned_now)]
            )
        for place in assigned:
            with transient(confluent_kafka.KafkaException):
                ends = self._client.get_watermark_offsets(place, cached=True)
            # Nothing read yet: an assigned partition is still where it began.
            position = place.offset if place.offset >= 0 else self._start
            # Aborted records and control records are passed without a record to tell of it.
            position = self._ends.get(place.partition, position)
            found[place.partition] = Place(position, ends[1] if ends and ends[1] >= 0 else -1)
        return found

    def close(self) -> None:
        self._client.close()

    def _assigned(self, client: Any, places: list[Any]) -> None:
        self._assigned_now.update(place.partition for place in places)
        for place in client.committed(places, timeout=REQUEST_TIMEOUT_S):
            self._moved("rebalance", place.partition, max(0, place.offset))

    def _revoked(self, client: Any, places: list[Any]) -> None:
        for place in places:
            self._ends.pop(place.partition, None)
            self._assigned_now.discard(place.partition)
            self._moved("revoke", place.partition, -1)

    def _at(self, partition: int, offset: int) -> Any:
        return confluent_kafka.TopicPartition(self._settings.topic, partition, offset)


class Cluster:
    """What the workload asks of a cluster besides sending and reading."""

    def __init__(self, bootstrap: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = min(timeout_s, REQUEST_TIMEOUT_S)
        self._admin: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def brokers(self) -> list[str]:
        try:
            metadata = self._admin.list_topics(timeout=self._timeout_s)
        except confluent_kafka.KafkaException as error:
            raise ClientError(f"cannot reach {self._bootstrap}: {error.args[0].str()}") from error
        ordered = sorted(metadata.brokers.items())
        return [f"{broker.host}:{broker.port}" for _, broker in ordered]

    def topics(self) -> list[str]:
        with transient(confluent_kafka.KafkaException):
            return sorted(self._admin.list_topics(timeout=self._timeout_s).topics)

    def leaders(self, topic: str) -> dict[int, tuple[int, str]]:
        """Per partition the leader and the in-sync replicas, as some broker knows them now."""
        with transient(confluent_kafka.KafkaException):
            found = self._admin.list_topics(topic, timeout=1.0).topics[topic]
        return {
            number: (part.leader, ",".join(map(str, sorted(part.isrs))))
            for number, part in found.partitions.items()
        }

    def create_topic(self, topic: str, partitions: int, replication: int) -> None:
        asked = NewTopic(topic, partitions, replication)
        try:
            self._admin.create_topics([asked], request_timeout=self._timeout_s)[topic].result()
        except confluent_kafka.KafkaException as error:
            raise ClientError(f"cannot create {topic}: {error.args[0].str()}") from error
        self._await_leaders(topic, partitions)

    def _await_leaders(self, topic: str, partitions: int) -> None:
        """Creation is acknowledged before every broker knows the topic."""
        deadline = time.perf_counter() + self._timeout_s
        while time.perf_counter() < deadline:
            found = self._admin.list_topics(topic, timeout=self._timeout_s).topics[topic]
            led = [part for part in found.partitions.values() if part.leader >= 0]
            if found.error is None and len(led) == partitions:
                return
            time.sleep(0.05)
        raise ClientError(f"{topic} has partitions without a leader")

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic], request_timeout=self._timeout_s)[topic].result()

    def log_bounds(self, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
        """Log start and end offset of each partition, as its leader says now."""
        client: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "chronik-audit", "log_level": 2}
        )
        try:
            return {number: self._bounds(client, topic, number) for number in range(partitions)}
        finally:
            client.close()

    def _bounds(self, client: Any, topic: str, partition: int) -> tuple[int, int]:
        """Asks again while brokers are down, for as long as a request may take."""
        place = confluent_kafka.TopicPartition(topic, partition)
        deadline = time.perf_counter() + self._timeout_s
        while True:
            try:
                low, high = client.get_watermark_offsets(place, timeout=self._timeout_s)
            except confluent_kafka.KafkaException as error:
                if time.perf_counter() > deadline:
                    said = f"no end offset of {topic}-{partition}: {error.args[0].str()}"
                    raise ClientError(said) from error
                time.sleep(0.2)
            else:
                return int(low), int(high)


def _quiet_logger() -> logging.Logger:
    """What the library complains about is an outcome in the ledger, or the error that is told."""
    quiet = logging.getLogger(f"{__name__}.librdkafka")
    quiet.propagate = False
    quiet.addHandler(logging.NullHandler())
    return quiet


_QUIET = _quiet_logger()


def producer_config(settings: ProducerSettings) -> dict[str, Any]:
    config = {
        "bootstrap.servers": settings.bootstrap,
        "acks": settings.acks,
        "enable.idempotence": settings.idempotent,
        "linger.ms": 5,
        "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
        "message.timeout.ms": int(settings.timeout_s * 1000),
        "log_level": 2,
        "logger": _QUIET,
    }
    if settings.transactional_id:
        config["transactional.id"] = settings.transactional_id
    return config


def _offsets(messages: list[Any]) -> "array[int]":
    found = [*map(_OFFSET, messages)]
    try:
        return array("q", found)
    except TypeError:  # None where the broker answered success without one
        return array("q", [-1 if offset is None else offset for offset in found])


def _epoch(message: Any) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else int(epoch)
