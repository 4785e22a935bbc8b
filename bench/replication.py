"""What a replicated batch costs: `python bench/replication.py [--in-flight 1] [--partitions 1]`.

Three nodes and the client share this process, so that its processor time is the sum over leader,
followers and client; the same with one replica is what replication adds nothing to.
"""

import argparse
import asyncio
import contextlib
import cProfile
import pstats
import statistics
import struct
import tempfile
import time
from collections.abc import AsyncIterator

import uvloop
from contestants import HOST, Chronik
from processes import say

from chronik.lab.cluster import free_ports
from chronik.model.settings import NodeSettings
from chronik.node.node import Node, running
from chronik.wire.codec import decode, encode
from chronik.wire.headers import read_response_header, write_request_header
from chronik.wire.messages import create_topics, produce
from chronik.wire.record_writer import build_batch
from chronik.wire.schema import Message

NODES = 3
PRODUCE_VERSION = 9
WARM_UP = 500
NEVER_MS = -1
"""No timestamp: Kafka's own mark for it."""


class Client:
    """Frames over one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, frame: bytes) -> None:
        """A request."""
        self._writer.write(frame)

    async def answer(self) -> bytes:
        """The next answer."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    def close(self) -> None:
        """Ends the connection."""
        self._writer.close()


def framed(request: Message, version: int) -> bytes:
    """A request as it goes over the wire."""
    frame = write_request_header(request.API_KEY, version, 1, "bench") + encode(request, version)
    return struct.pack(">i", len(frame)) + frame


def batches(partitions: int, records: int) -> bytes:
    """One acks=all request with a batch for every partition."""
    batch = bytes(build_batch([(None, b"x" * 100)] * records, NEVER_MS))
    data = [produce.PartitionProduceData(index=n, records=batch) for n in range(partitions)]
    topics = [produce.TopicProduceData(name="bench", partition_data=data)]
    request = produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
    return framed(request, PRODUCE_VERSION)


async def produced(client: Client, frame: bytes, count: int, in_flight: int) -> list[float]:
    """Milliseconds of each request."""
    sent: list[float] = []
    took = []
    for number in range(count + in_flight):
        if number < count:
            sent.append(time.perf_counter())
            client.send(frame)
        if number >= in_flight:
            answer = await client.answer()
            took.append((time.perf_counter() - sent[number - in_flight]) * 1e3)
    _, body = read_response_header(0, PRODUCE_VERSION, answer)
    said = decode(produce.ProduceResponse, PRODUCE_VERSION, answer, body)
    if said.responses[0].partition_responses[0].error_code:
        raise RuntimeError(f"not acknowledged: {said}")
    return took


async def measure(asked: argparse.Namespace, nodes: dict[int, Node], replicas: int) -> None:
    """One row: all partitions are led by node 1."""
    client = Client(*await asyncio.open_connection(HOST, nodes[1].port))
    others = [one for one in nodes if one != 1][: replicas - 1]
    assignments = [
        create_topics.CreatableReplicaAssignment(partition_index=n, broker_ids=[1, *others])
        for n in range(asked.partitions)
    ]
    topic = create_topics.CreatableTopic("bench", -1, -1, assignments=assignments)
    client.send(framed(create_topics.CreateTopicsRequest(topics=[topic]), 5))
    await client.answer()
    frame = batches(asked.partitions, asked.records)
    await produced(client, frame, WARM_UP, asked.in_flight)
    profile = cProfile.Profile()
    began, wall = time.process_time(), time.perf_counter()
    if asked.profile and replicas > 1:
        profile.enable()
    took = await produced(client, frame, asked.requests, asked.in_flight)
    profile.disable()
    cpu_us = (time.process_time() - began) / asked.requests * 1e6
    rate = asked.requests / (time.perf_counter() - wall)
    cuts = statistics.quantiles(took, n=100)
    say(f"{replicas:>8} {cpu_us:>8.0f} {rate:>8.0f} {cuts[49]:>8.3f} {cuts[98]:>8.3f}")
    client.close()
    if asked.profile and replicas > 1:
        show(profile, asked.requests)


def show(profile: cProfile.Profile, requests: int) -> None:
    """Where the calls of a request are."""
    found = pstats.Stats(profile)
    say(f"calls per request: {found.total_calls / requests:.0f}")  # type: ignore[attr-defined]
    found.sort_stats("tottime").print_stats(60)


class Cluster:
    """The nodes, each in a task of its own."""

    def __init__(self, directory: str, durability: str) -> None:
        self._base = free_ports(2 * NODES)
        self._directory = directory
        self._durability = durability
        self._stop = asyncio.Event()
        self._started = asyncio.Semaphore(0)
        self.nodes: dict[int, Node] = {}

    def _settings(self, node_id: int) -> NodeSettings:
        peers = tuple((n, HOST, self._base + NODES + n - 1) for n in range(1, NODES + 1))
        return NodeSettings(
            data_dir=f"{self._directory}/{node_id}",
            node_id=node_id,
            port=self._base + node_id - 1,
            peer_port=self._base + NODES + node_id - 1,
            peers=peers,
            durability=self._durability,
        )

    async def _host(self, node_id: int) -> None:
        async with running(self._settings(node_id)) as node:
            self.nodes[node_id] = node
            self._started.release()
            await self._stop.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[dict[int, Node]]:
        """All of them, ready."""
        async with asyncio.TaskGroup() as tasks:
            for node_id in range(1, NODES + 1):
                tasks.create_task(self._host(node_id))
            for _ in range(NODES):
                await self._started.acquire()
            yield self.nodes
            self._stop.set()


async def main(asked: argparse.Namespace) -> None:
    """Prints a table."""
    say("replicas   CPU us    req/s   p50 ms   p99 ms")
    for replicas in (1, NODES) if not asked.profile else (NODES,):
        with tempfile.TemporaryDirectory(dir=Chronik("os").work_directory()) as directory:
            async with Cluster(directory, asked.durability).running() as nodes:
                await measure(asked, nodes, replicas)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--durability", choices=("os", "fsync"), default="os")
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--records", type=int, default=1, help="in each batch")
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--requests", type=int, default=3_000)
    parser.add_argument("--profile", action="store_true", help="count calls")
    uvloop.run(main(parser.parse_args()))
