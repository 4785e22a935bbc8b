"""A client that sends many requests at once gets their answers in few pieces, in order."""

import struct
from typing import Any

import pytest
from kio.index import load_request_schema
from tests.clients.batches import Batch
from tests.clients.wire import Connection, build, encode, request_header

import chronik.net.connection as net
from chronik.embedded import embedded

VERSION, REQUESTS, PARTITIONS = 9, 60, 3


def produce_frame(number: int) -> bytes:
    """Length and all."""
    data = {"index": number % PARTITIONS, "records": Batch(values=[b"%d" % number]).encode()}
    fields: dict[str, Any] = {
        "acks": 1,
        "timeout": 9000,
        "topic_data": [{"name": "many", "partition_data": [data]}],
    }
    body = encode(build(load_request_schema(0, VERSION), fields))
    frame = request_header("produce", VERSION, number) + body
    return struct.pack(">i", len(frame)) + frame


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_many_produces_at_once_are_answered_in_few_sends(
    monkeypatch: pytest.MonkeyPatch, durability: Any
) -> None:
    sends, send = [], net.Connection._send

    def counted(self: net.Connection, transport: Any, out: list[Any]) -> None:
        sends.append(len(out))
        send(self, transport, out)

    with embedded(durability=durability) as broker, Connection(broker.port) as client:
        asked = {"name": "many", "num_partitions": PARTITIONS, "replication_factor": 1}
        client.ask("create_topics", 7, topics=[asked], timeout=10_000)
        client.send_bytes(produce_frame(0))  # the first batch of a log makes its file
        client.read("produce", VERSION, 0)
        monkeypatch.setattr(net.Connection, "_send", counted)
        client.send_bytes(b"".join(produce_frame(n) for n in range(1, REQUESTS)))
        for number in range(1, REQUESTS):
            answer = client.read("produce", VERSION, number)
            (result,) = answer.responses[0].partition_responses
            assert (result.error_code, result.base_offset) == (0, number // PARTITIONS)
        assert len(sends) <= 2 * PARTITIONS, sends
