"""What the auditor's use of librdkafka must not forget, with the library's classes replaced."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from chronik.audit.client_confluent import Consumer, Producer
from chronik.audit.clients import ConsumerSettings, Outgoing, ProducerSettings
from chronik.audit.ledger import LedgerWriter
from chronik.audit.send_log import SendLog


class Library:
    """A client that writes down what is asked of it, in order."""

    def __init__(self, *_: Any) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def answer(*arguments: Any, **_: Any) -> Any:
            self.asked.append(name)
            if name in {"position", "committed"}:
                return [SimpleNamespace(partition=one.partition, offset=7) for one in arguments[0]]
            return (0, 9) if name == "get_watermark_offsets" else None

        return answer


def places(*partitions: int) -> list[Any]:
    return [confluent_kafka.TopicPartition("t", one) for one in partitions]


def test_a_producer_knows_the_leaders_before_it_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confluent_kafka, "Producer", Library)
    with LedgerWriter(tmp_path / "p0.arrows", "run", "p0") as ledger:
        settings = ProducerSettings("127.0.0.1:1", "t", "all", True, 1.0)
        client = Producer(settings, SendLog(ledger, "t"))
        client.send([Outgoing(0, 0, None, b"value")])
    assert client._client.asked == ["list_topics", "produce"]


def test_a_consumer_knows_itself_what_it_was_given_and_what_was_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The library's own answer may never come, and Python stands still meanwhile."""
    monkeypatch.setattr(confluent_kafka, "Consumer", Library)
    settings = ConsumerSettings("127.0.0.1:1", "t", 3, "group", 10, 100)
    consumer = Consumer(settings, lambda *_: None)
    consumer._assigned(consumer._client, places(0, 1, 2))
    assert sorted(consumer.places()) == [0, 1, 2]
    consumer._revoked(consumer._client, places(1))
    assert sorted(consumer.places()) == [0, 2]
    assert "assignment" not in consumer._client.asked
