"""From lines to acknowledged records, with a count of each step."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from chronik.broker.clock import Clock, SystemClock
from chronik.cli._client import ANSWER_SECONDS_MAX, Cluster, bad_settings, error_text
from chronik.cli._output import count_text, note, size_text

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

ACK_MS_MAX = 30_000
POLL_S = 0.1

KeyValue = tuple[bytes | None, bytes | None]
Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Lines:
    """How a line becomes key and value."""

    key: bytes | None = None
    separator: bytes | None = None
    null: bytes | None = None

    def read(
        self, file: BinaryIO, progress: Callable[[int], None] = lambda _: None
    ) -> Iterator[KeyValue]:
        """One key and value per line; `progress` hears how many bytes each line took."""
        for number, line in enumerate(file, 1):
            yield self._split(line.removesuffix(b"\n"), number)
            progress(len(line))

    def _split(self, line: bytes, number: int) -> KeyValue:
        key, value = self.key, line
        if self.separator is not None:
            key, found, value = line.partition(self.separator)
            if not found:
                raise click.ClickException(
                    f"line {number} has no separator {self.separator.decode(errors='replace')!r}: "
                    f"{_excerpt(line)}"
                )
        return key, None if value == self.null else value


def _excerpt(line: bytes | None, length_max: int = 60) -> str:
    text = repr((line or b"").decode(errors="replace"))
    return text if len(text) <= length_max else text[:length_max] + "...'"


def require_topic(cluster: Cluster, topic: str, partition: int | None) -> None:
    """A topic that is not there is created by the broker if it does that, and the user is told."""
    known = cluster.metadata().topics.get(topic)
    if known is None:
        # Asking for one topic by name is what makes a broker create it (auto.create.topics.enable).
        cluster.admin.list_topics(topic, timeout=ANSWER_SECONDS_MAX)
        if not cluster.wait_for_topics([topic]):
            raise cluster.unknown_topic(topic)
        known = cluster.metadata().topics[topic]
        note(f"Topic '{topic}' is new: the broker created it.")
    count = len(known.partitions)
    if partition is not None and count and partition >= count:
        raise click.BadParameter(
            f"topic '{topic}' has {count_text(count, 'partition')}: 0 to {count - 1}",
            param_hint="'--partition'",
        )


def new_producer(cluster: Cluster, acks: str, compression: str, *, idempotent: bool) -> "Producer":
    """A producer that gives up on a record after half a minute."""
    from confluent_kafka import Producer

    settings = cluster.settings(
        **{
            "acks": acks,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "message.timeout.ms": ACK_MS_MAX,
            # A connection on demand is made up to a second after the first record asks for it.
            "enable.sparse.connections": False,
        }
    )
    with bad_settings():
        return Producer(settings)


class Sending:
    """One run: every record is sent, then acknowledged or failed, and counted as such."""

    def __init__(
        self,
        producer: "Producer",
        topic: str,
        partition: int | None = None,
        headers: Headers | None = None,
        rate: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.sent = self.acknowledged = self.failed = self.bytes_acknowledged = 0
        self._producer = producer
        self._topic = topic
        self._more: dict[str, Any] = {"on_delivery": self._delivered}
        if partition is not None:
            self._more["partition"] = partition
        if headers:
            self._more["headers"] = headers
        self._rate = rate
        self._clock = clock or SystemClock()
        self._started_ns = self._clock.monotonic_ns()
        self._first_failure = ""

    def send(self, records: Iterable[KeyValue]) -> None:
        """Sends all; stops early once one failed, since the others would most likely as well."""
        for key, value in records:
            if self._rate is not None:
                self._wait_for_turn()
            self._send(key, value)
            if self.failed:
                break

    def _send(self, key: bytes | None, value: bytes | None) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(self._topic, value, key, **self._more)
            except BufferError:
                self._producer.poll(POLL_S)  # the queue is full: wait for acknowledgements
                continue
            except KafkaException as error:
                self._note_failure(error.args[0], value)
            break
        self.sent += 1
        self._producer.poll(0)

    def _wait_for_turn(self) -> None:
        assert self._rate is not None
        due_ns = self._started_ns + int(self.sent / self._rate * 1e9)
        while (left_ns := due_ns - self._clock.monotonic_ns()) > 0:
            self._producer.poll(min(left_ns / 1e9, POLL_S))

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self._note_failure(error, message.value())
            return
        self.acknowledged += 1
        self.bytes_acknowledged += len(message) + len(message.key() or b"")

    def _note_failure(self, error: "KafkaError", value: Any) -> None:
        self.failed += 1
        if not self._first_failure:
            self._first_failure = f"{_excerpt(value)}: {error_text(error)}"

    def flush(self) -> None:
        """Waits until every record is acknowledged or failed; in short steps, for Ctrl-C's sake."""
        while self._producer.flush(POLL_S):
            pass

    def summary(self) -> str:
        """What happened, in a line."""
        elapsed_s = (self._clock.monotonic_ns() - self._started_ns) / 1e9
        text = (
            f"{count_text(self.acknowledged, 'record')} ({size_text(self.bytes_acknowledged)}) "
            f"to {self._topic} in {elapsed_s:.2f} s"
        )
        if self.acknowledged >= 1000:
            text += f", {self.acknowledged / elapsed_s:,.0f} records/s"
        return text

    def require_success(self) -> None:
        """Fails unless everything that was sent was acknowledged."""
        if self.failed:
            raise click.ClickException(
                f"{count_text(self.failed, 'record')} of {self.sent:,} not delivered, and nothing "
                f"sent after that. The first: {self._first_failure}"
            )
