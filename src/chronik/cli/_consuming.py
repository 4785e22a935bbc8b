"""Records of assigned partitions up to given ends, with no consumer group and no commits."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from chronik.broker.clock import Clock, SystemClock
from chronik.cli._client import CLIENT_ID, Cluster, bad_settings, error_text
from chronik.cli._output import note

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from chronik.cli._offsets import Partition

POLL_S = 0.2
BATCH = 1000
SILENCE_S_MAX = 30.0


class Consuming:
    """One run over partitions, from a start offset each to an end offset, or without end."""

    def __init__(
        self,
        cluster: Cluster,
        starts: "Mapping[Partition, int]",
        ends: "Mapping[Partition, int]",
        count: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """An empty `ends` means to follow."""
        self.delivered = 0
        self._follow = not ends
        self._ends = ends
        self._left = {key for key, start in starts.items() if self._follow or start < ends[key]}
        self._count = count
        self._clock = clock or SystemClock()
        self._lost: KafkaError | None = None
        self._consumer = self._open(cluster, {key: starts[key] for key in self._left})

    def _open(self, cluster: Cluster, starts: "Mapping[Partition, int]") -> Any:
        from confluent_kafka import Consumer, TopicPartition

        settings = cluster.settings(
            **{
                "group.id": CLIENT_ID,  # librdkafka wants one; nothing joins it or commits to it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # Records that retention took away while reading are an error, not a silent gap.
                "auto.offset.reset": "error",
                "fetch.queue.backoff.ms": 10,  # librdkafka rests a whole second on a full queue
                "error_cb": self._on_error,
            }
        )
        with bad_settings():
            consumer = Consumer(settings)
        if starts:
            consumer.assign([TopicPartition(*key, start) for key, start in starts.items()])
        return consumer

    def close(self) -> None:
        """Ends the connection."""
        self._consumer.close()

    def messages(self) -> "Iterator[Message | None]":
        """The records as they come; None whenever there is none at this moment."""
        while self._left and (self._count is None or self.delivered < self._count):
            messages = self._consumer.consume(self._batch(), 0)
            if not messages:
                yield None
                messages = self._wait()
            for message in messages:
                if self._accept(message):
                    self.delivered += 1
                    yield message

    def _batch(self) -> int:
        """How many messages to take at once; never more than are wanted."""
        return BATCH if self._count is None else min(BATCH, self._count - self.delivered)

    def _wait(self) -> "list[Message]":
        """The next message; none if there was none for a moment, an error if for too long."""
        limit_ns = self._clock.monotonic_ns() + int(SILENCE_S_MAX * 1e9)
        while self._clock.monotonic_ns() < limit_ns:
            messages: list[Message] = self._consumer.consume(1, POLL_S)
            self._check_connection()
            if messages or self._follow:
                return messages
        raise click.ClickException(
            f"no records came for {SILENCE_S_MAX:.0f} s, though there are more. Is the leader of "
            "each partition up ('chronik topic describe')?"
        )

    def _accept(self, message: "Message") -> bool:
        """Whether it is a record to show; takes note of the ends that are reached."""
        self._lost = None
        key = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is not None:
            self._handle(error, key, message)
            return False
        if self._follow or key not in self._left:
            return key in self._left
        offset, end = message.offset() or 0, self._ends[key]
        if offset + 1 >= end:
            self._finish(key)
        return offset < end

    def _handle(self, error: "KafkaError", key: "Partition", message: "Message") -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._PARTITION_EOF:
            if not self._follow:
                self._finish(key)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise click.ClickException(
                f"offset {message.offset()} of partition {key[1]} is not there any more (retention "
                "or a deletion took it away while reading): begin again with --from earliest"
            )
        elif not error.retriable():
            raise click.ClickException(f"partition {key[1]}: {error_text(error)}")

    def _finish(self, key: "Partition") -> None:
        from confluent_kafka import TopicPartition

        self._left.discard(key)
        if self._left:
            self._consumer.incremental_unassign([TopicPartition(*key)])

    # -- connection lost

    def _on_error(self, error: "KafkaError") -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._lost is None:
            self._lost = error
            if self._follow:
                note("The connection to the cluster is lost; waiting for it to come back ...")

    def _check_connection(self) -> None:
        if self._lost is not None and not self._follow:
            raise click.ClickException(
                f"the connection to the cluster was lost after {self.delivered:,} records. Is the "
                "broker still up?"
            )
