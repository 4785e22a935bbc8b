"""What the auditor's use of librdkafka must not forget, with the library's classes replaced."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from chronik.audit import client_confluent
from chronik.audit.client_confluent import Consumer, Producer
from chronik.audit.clients import ConsumerSettings, Outgoing, ProducerSettings
from chronik.audit.ledger import LedgerWriter, read_rows
from chronik.audit.payload import PayloadWriter
from chronik.audit.rows import Outcome
from chronik.audit.send_log import SendLog


class Library:
    """A client that writes down what is asked of it, in order."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
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


class Delivered:
    """A record as the library reports it: to be called through the class, as the real one is."""

    def __init__(self, value: bytes, offset: int | None) -> None:
        self._value, self._offset = value, offset

    def value(self) -> bytes:
        return self._value

    def partition(self) -> int:
        return 2

    def offset(self) -> int | None:
        return self._offset


@pytest.mark.parametrize(
    ("acks", "offset", "outcome"),
    [("all", 41, (Outcome.OK, 41)), ("1", None, (Outcome.OK, -1)), ("0", 41, (Outcome.INFO, -1))],
)
def test_what_is_written_of_a_delivery(
    acks: str,
    offset: int | None,
    outcome: tuple[Outcome, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without acks a delivery says nothing; success without an offset is kept as such."""
    monkeypatch.setattr(confluent_kafka, "Producer", Library)
    for name in ("value", "partition", "offset"):
        monkeypatch.setattr(client_confluent, f"_{name.upper()}", getattr(Delivered, name))
    path = tmp_path / "p0.ledger"
    value, checksum = PayloadWriter(1, 0, 100).write(0)
    with LedgerWriter(path, "run", "p0") as ledger:
        log = SendLog(ledger, "t", 1)
        client = Producer(ProducerSettings("127.0.0.1:1", "t", acks, False, 1.0), log)
        log.begin(0, [checksum])
        client._client.config["on_delivery"](None, Delivered(value, offset))
        client.drain()
        log.close()
    (row,) = read_rows([path])
    assert (row.outcome, row.offset) == outcome
    assert (row.partition, row.sequence, row.checksum) == (2, 0, checksum)


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
