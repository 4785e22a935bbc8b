"""Topics to fill, and what a plain client finds in them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None, "broker.address.family": "v4"}
Message = tuple[bytes | None, bytes | None]
Rows = list[tuple[Any, ...]]
Ask = Callable[..., Rows]
"""Asks one SQL engine."""


@dataclass
class Log:
    """A cluster as a test sees it."""

    bootstrap: str
    _numbers: Any = field(default_factory=count)

    def topic(self, partitions: int = 1, name: str = "", **configs: str) -> str:
        """A new topic."""
        from confluent_kafka.admin import NewTopic

        name = name or f"topic-{next(self._numbers)}"
        admin = AdminClient(QUIET | {"bootstrap.servers": self.bootstrap})
        new = NewTopic(
            name, partitions, 1, config={k.replace("_", "."): v for k, v in configs.items()}
        )
        for future in admin.create_topics([new]).values():
            future.result()
        return name

    def send(
        self, topic: str, messages: Iterable[Message], partition: Any = None, **more: Any
    ) -> None:
        """Sends and waits for the acknowledgements."""
        settings = QUIET | {"bootstrap.servers": self.bootstrap, "linger.ms": 5} | more
        producer = Producer(settings)
        where: Any = {} if partition is None else {"partition": partition}
        for key, value in messages:
            producer.produce(topic, value, key, **where)
        assert producer.flush(30) == 0

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """As retention does."""
        admin = AdminClient(QUIET | {"bootstrap.servers": self.bootstrap})
        for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            future.result()

    def read(
        self, topic: str, partitions: int
    ) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """Everything in the topic, by a client that shares no code with the pipeline."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "t",
            "enable.auto.commit": False,
        }
        consumer = Consumer(QUIET | settings)
        found: list[Any] = []
        for partition in range(partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition))
            consumer.assign([TopicPartition(topic, partition, low)])
            while low < high:
                for message in consumer.consume(min(1_000, high - low), 0.5):
                    assert message.error() is None
                    found.append((partition, message.offset(), message.key(), message.value()))
                    low = found[-1][1] + 1
        consumer.close()
        return sorted(found, key=lambda row: row[:2])


def numbered(first: int, last: int, size: int = 20) -> list[Message]:
    """Messages that differ."""
    return [(b"key%d" % n, b"%d:" % n + b"x" * size) for n in range(first, last)]


def rows_of(table: Any) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """A raw table by pyiceberg, in the order of the log."""
    found = table.scan(selected_fields=("partition", "offset", "key", "value")).to_arrow()
    return rows_of_arrow(found)


def rows_of_arrow(found: Any) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """The same of an Arrow table."""
    columns = [found.column(name).to_pylist() for name in ("partition", "offset", "key", "value")]
    return sorted(zip(*columns, strict=True), key=lambda row: row[:2])


def rows_in(found: Any) -> Rows:
    """All rows of an Arrow table."""
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))
