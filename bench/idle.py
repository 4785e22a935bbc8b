"""What waiting clients cost: `python bench/idle.py [--connections 0 500 2000 5000]`.

Each connection has a long poll open on a topic where nothing happens. Beside them one producer has
one request in flight on another topic: its latency must not grow with the number of those who wait.
The last line says what 2,000 of them cost: at most 100 MiB, and no processor time to speak of.
"""

import argparse
import contextlib
import resource
import socket
import statistics
import struct
import time
from typing import NamedTuple

from contestants import HOST, Chronik
from processes import anonymous_bytes, cpu_seconds, say, wait_for_port

from chronik.wire.codec import decode, encode
from chronik.wire.headers import read_response_header, write_request_header
from chronik.wire.messages import create_topics, fetch, produce
from chronik.wire.record_writer import build_batch
from chronik.wire.schema import Message

FETCH_VERSION, PRODUCE_VERSION = 12, 9
WAIT_MS = 600_000
SETTLE_SECONDS, IDLE_SECONDS = 1, 4
PRODUCES, WARM_UP = 3_000, 500
JUDGED, BYTES_MAX, CPU_MAX = 2_000, 100 << 20, 0.01
NEVER_MS = -1
"""No timestamp: Kafka's own mark for it."""


def framed(request: Message, version: int) -> bytes:
    """A request as it goes over the wire."""
    frame = write_request_header(request.API_KEY, version, 1, "bench") + encode(request, version)
    return struct.pack(">i", len(frame)) + frame


def poll() -> bytes:
    """A fetch that waits for data that never comes."""
    wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [fetch.FetchTopic(topic="quiet", partitions=[wanted])]
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=topics,
    )
    return framed(request, FETCH_VERSION)


def exactly(connection: socket.socket, count: int) -> bytes:
    """That many bytes."""
    data = connection.recv(count, socket.MSG_WAITALL)
    if len(data) < count:
        raise ConnectionError("the node closed the connection")
    return data


def answer(connection: socket.socket) -> bytes:
    """The next frame."""
    (size,) = struct.unpack(">i", exactly(connection, 4))
    return exactly(connection, size)


def latencies(connection: socket.socket, count: int) -> list[float]:
    """Milliseconds of each produce, one after the other."""
    batch = bytes(build_batch([(None, b"x" * 100)], NEVER_MS))
    data = produce.PartitionProduceData(index=0, records=batch)
    topics = [produce.TopicProduceData(name="busy", partition_data=[data])]
    request = produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
    frame, took = framed(request, PRODUCE_VERSION), []
    for _ in range(count):
        began = time.perf_counter()
        connection.sendall(frame)
        found = answer(connection)
        took.append((time.perf_counter() - began) * 1e3)
    _, body = read_response_header(request.API_KEY, PRODUCE_VERSION, found)
    said = decode(produce.ProduceResponse, PRODUCE_VERSION, found, body)
    if said.responses[0].partition_responses[0].error_code:
        raise RuntimeError(f"not acknowledged: {said}")
    return took


def connect(port: int) -> socket.socket:
    """A connection without delays of its own."""
    connection = socket.create_connection((HOST, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Row(NamedTuple):
    """What a node with so many idle connections costs; milliseconds and microseconds of acks."""

    connections: int
    grown_bytes: int
    idle_share: float
    p50_ms: float
    p99_ms: float
    cpu_us: float

    def __str__(self) -> str:
        return (
            f"{self.connections:>11} {self.grown_bytes / 2**20:>8.1f} {self.idle_share:>8.1%} "
            f"{self.p50_ms:>8.3f} {self.p99_ms:>8.3f} {self.cpu_us:>8.0f}"
        )


def verdict(row: Row, alone: Row) -> str:
    """One line: what the connections of a row cost, and whether that is within the bounds."""
    cpu = max(0.0, row.idle_share - alone.idle_share)
    kept = row.grown_bytes <= BYTES_MAX and cpu <= CPU_MAX
    return (
        f"{row.connections} idle connections cost {row.grown_bytes / 2**20:.0f} MiB "
        f"({row.grown_bytes / row.connections / 1024:.1f} KiB each) and {cpu:.1%} of a processor: "
        f"{'within' if kept else 'BEYOND'} {BYTES_MAX >> 20} MiB and {CPU_MAX:.0%}"
    )


def measure(durability: str, count: int) -> Row:
    """One row, on a fresh node."""
    with Chronik(durability).running() as (bootstrap, pids), contextlib.ExitStack() as stack:
        port = int(bootstrap.rpartition(":")[2])
        wait_for_port(port)
        producer = stack.enter_context(connect(port))
        asked = [create_topics.CreatableTopic(name, 1, 1) for name in ("busy", "quiet")]
        producer.sendall(framed(create_topics.CreateTopicsRequest(topics=asked), 5))
        answer(producer)
        latencies(producer, WARM_UP)
        before, waiting = anonymous_bytes(pids), poll()
        for _ in range(count):
            stack.enter_context(connect(port)).sendall(waiting)
        time.sleep(SETTLE_SECONDS)
        grown, cpu = anonymous_bytes(pids) - before, cpu_seconds(pids)
        time.sleep(IDLE_SECONDS)
        idle, cpu = (cpu_seconds(pids) - cpu) / IDLE_SECONDS, cpu_seconds(pids)
        took = latencies(producer, PRODUCES)
        cpu = (cpu_seconds(pids) - cpu) / PRODUCES
    cuts = statistics.quantiles(took, n=100)
    return Row(count, grown, idle, cuts[49], cuts[98], cpu * 1e6)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--durability", choices=("os", "fsync"), default="os")
    parser.add_argument("--connections", type=int, nargs="+", default=[0, 500, 2000, 5000])
    asked = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(hard, max(JUDGED, *asked.connections) + 500), hard)
    )
    say("connections      MiB     idle   p50 ms   p99 ms   CPU us")
    rows: dict[int, Row] = {}
    for count in sorted({0, JUDGED, *asked.connections}):
        rows[count] = measure(asked.durability, count)
        say(str(rows[count]))
    say(verdict(rows[JUDGED], rows[0]))


if __name__ == "__main__":
    main()
