"""`write.format("chronik")`: rows to a topic, with an idempotent producer per task.

Columns: `value` (binary or string), and if wanted `key`, `topic`, `partition` and `headers`, as for
Spark's Kafka sink. Like that one it is at least once: a task that Spark repeats sends its rows
again, under a new producer id. Options `kafka.*` go to the producer.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from chronik.pipeline.offsets import BadOption

FLUSH_SECONDS_MAX = 120.0
LEADER_SECONDS_MAX = 10.0
_POLL_ROWS = 1_000


class SinkError(Exception):
    """Rows that the cluster did not take."""


@dataclass(frozen=True)
class SinkOptions:
    """Where to write."""

    topic: str | None
    producer: dict[str, str]


def write_options(options: Mapping[str, str]) -> SinkOptions:
    """The options by the names of Spark's Kafka sink."""
    given = {name.lower(): value for name, value in options.items()}
    producer = {name[6:]: value for name, value in given.items() if name.startswith("kafka.")}
    if "bootstrap.servers" not in producer:
        raise BadOption("option 'kafka.bootstrap.servers' says where the cluster is")
    settings = {"enable.idempotence": "true", "linger.ms": "20", "compression.type": "lz4"}
    return SinkOptions(given.get("topic"), settings | producer)


@dataclass
class Sent(WriterCommitMessage):
    """How many rows a task sent and saw acknowledged."""

    rows: int


class ChronikWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Sent:
        return send(self._options, iterator)


class ChronikStreamWriter(DataSourceStreamArrowWriter):
    """The write of one micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Sent:
        return send(self._options, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing: every row was acknowledged before its task ended."""

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Nothing: what was sent cannot be taken back."""


def send(options: SinkOptions, batches: Iterator[Any]) -> Sent:
    """Sends all rows and waits until each is acknowledged."""
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - only the tasks need it

    problems: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            problems.append(str(error))

    producer = Producer({**options.producer, "error_cb": lambda _: None, "log_level": 0})
    if options.topic:
        # A row that comes before the library knows its leader waits for a whole second there.
        with contextlib.suppress(KafkaException):
            producer.list_topics(options.topic, LEADER_SECONDS_MAX)
    count = 0
    for batch in batches:
        for row in batch.to_pylist():
            _produce(producer, options.topic, row, delivered)
            count += 1
            if count % _POLL_ROWS == 0:
                producer.poll(0)
    left = producer.flush(FLUSH_SECONDS_MAX)
    if left or problems:
        raise SinkError(f"{left + len(problems)} of {count} rows were not taken: {problems[:3]}")
    return Sent(count)


def _produce(producer: Any, topic: str | None, row: dict[str, Any], delivered: Any) -> None:
    to = row.get("topic") or topic
    if not to:
        raise BadOption("no topic: give the option 'topic' or a column of that name")
    where = {} if row.get("partition") is None else {"partition": row["partition"]}
    headers = [(one["key"], one["value"]) for one in row.get("headers") or ()]
    while True:
        try:
            producer.produce(
                to, row["value"], row.get("key"), headers=headers, on_delivery=delivered, **where
            )
        except BufferError:  # the producer's queue is full: wait for some acknowledgements
            producer.poll(0.1)
        else:
            return
