"""kafka-python as an auditor's client: the one of the seed notes."""

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import kafka
from kafka.errors import KafkaError

from chronik.audit.clients import (
    ConsumerSettings,
    Moved,
    Outgoing,
    Place,
    ProducerSettings,
    outcome_of,
    transient,
)
from chronik.audit.record_log import Polled
from chronik.audit.send_log import SendLog


class Producer:
    """Its callbacks run on the client's thread, so outcomes wait in a queue for the caller's."""

    def __init__(self, settings: ProducerSettings, log: SendLog) -> None:
        self._log, self._topic = log, settings.topic
        self._ended: deque[tuple[int, Any, Any]] = deque()
        self._sent = self._reported = 0
        self._client: Any = kafka.KafkaProducer(
            bootstrap_servers=settings.bootstrap,
            acks=settings.acks if settings.acks == "all" else int(settings.acks),
            enable_idempotence=settings.idempotent,
            linger_ms=5,
            delivery_timeout_ms=int(settings.timeout_s * 1000),
            request_timeout_ms=min(30_000, int(settings.timeout_s * 1000) - 10),
        )

    def send(self, records: Sequence[Outgoing]) -> None:
        for sequence, partition, key, value in records:
            self._sent += 1
            try:
                future = self._client.send(self._topic, value, key, partition=partition)
            except KafkaError as error:
                self._ended.append((sequence, None, error))
                continue
            future.add_callback(self._keep, sequence)
            future.add_errback(self._fail, sequence)

    def drain(self, wait_s: float = 0.0) -> None:
        if wait_s:
            time.sleep(wait_s)
        sequences, partitions, offsets = [], [], []
        while self._ended:
            sequence, metadata, error = self._ended.popleft()
            self._reported += 1
            if error is None and metadata.offset is not None and metadata.offset >= 0:
                sequences.append(sequence)
                partitions.append(metadata.partition)
                offsets.append(metadata.offset)
            else:
                name = type(error).__name__ if error else "acks=0"
                self._log.ended(sequence, outcome_of(name), name)
        self._log.acked(sequences, partitions, offsets)

    def settle(self, timeout_s: float) -> int:
        with suppress(KafkaError):  # what has no outcome after the timeout is counted below
            self._client.flush(timeout=timeout_s)
        self.drain()
        return self._sent - self._reported

    def close(self, timeout_s: float) -> int:
        self.settle(timeout_s)
        self._client.close(timeout=timeout_s)
        self.drain()
        return self._sent - self._reported

    def _keep(self, sequence: int, metadata: Any) -> None:
        self._ended.append((sequence, metadata, None))

    def _fail(self, sequence: int, error: Any) -> None:
        self._ended.append((sequence, None, error))


class Consumer:
    """Assigned partitions from their beginning, or a group."""

    def __init__(self, settings: ConsumerSettings, moved: Moved) -> None:
        self._settings, self._moved = settings, moved
        self._moves: deque[tuple[str, int]] = deque()
        self._client: Any = kafka.KafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group or None,
            enable_auto_commit=bool(settings.group),
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=settings.poll_records_max,
            fetch_max_wait_ms=settings.fetch_wait_ms,
        )
        if settings.group:
            self._client.subscribe([settings.topic], listener=_listener(self._moves))
        else:
            places = [self._at(partition) for partition in range(settings.partitions)]
            self._client.assign(places)
            self._client.seek_to_beginning(*places)
            for place in places:
                moved("assign", place.partition, 0)

    def poll(self, timeout_s: float) -> list[Polled]:
        with transient(KafkaError):
            polled = self._client.poll(timeout_ms=int(timeout_s * 1000))
        while self._moves:
            self._moved(*self._moves.popleft(), -1)
        return [
            Polled(r.partition, r.offset, r.key, r.value, _epoch(r))
            for records in polled.values()
            for r in records
        ]

    def places(self) -> dict[int, Place]:
        found = {}
        for place in self._client.assignment():
            end = self._client.highwater(place)
            with transient(KafkaError):
                position = self._client.position(place, timeout_ms=1_000)
            known = -1 if position is None else position
            found[place.partition] = Place(known, -1 if end is None else end)
        return found

    def close(self) -> None:
        self._client.close()

    def _at(self, partition: int) -> Any:
        return kafka.TopicPartition(self._settings.topic, partition)


def _listener(moves: deque[tuple[str, int]]) -> Any:
    base: Any = kafka.ConsumerRebalanceListener

    class Listener(base):  # type: ignore[misc]
        """Runs on the client's thread, which must not wait: the moves are told at the next poll."""

        def on_partitions_revoked(self, revoked: Any) -> None:
            for place in revoked:
                moves.append(("revoke", place.partition))

        def on_partitions_assigned(self, assigned: Any) -> None:
            for place in assigned:
                moves.append(("rebalance", place.partition))

    return Listener()


def _epoch(record: Any) -> int:
    epoch = getattr(record, "leader_epoch", None)
    return -1 if epoch is None else int(epoch)
