"""Three nodes with many partitions: what they cost idle, and how soon a dead node is replaced.

Each partition has three replicas and one record. The time to fail over is from kill -9 until a
produce with acks=all was acknowledged by every partition whose leader died.
"""

import contextlib
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from contestants import BENCH, HOST, Chronik
from processes import anonymous_bytes, cpu_seconds, say, wait_for_port

from chronik.lab.cluster import free_ports
from chronik.wire.codec import decode, encode
from chronik.wire.headers import read_response_header, write_request_header
from chronik.wire.messages import create_topics, metadata, produce
from chronik.wire.record_writer import build_batch
from chronik.wire.schema import Message

NODES = (1, 2, 3)
PARTITIONS_PER_TOPIC = 100
IDLE_SECONDS = 10
SETTLE_SECONDS, SETTLE_SECONDS_MAX = 2, 90
SETTLED_SHARE, SETTLED_LOOKS = 0.1, 4
"""What was written is checkpointed within some seconds: idle is who stays below this share."""
READY_SECONDS_MAX = 120
ASK_AGAIN_SECONDS = 0.02
VERSIONS = {"CreateTopicsRequest": 5, "MetadataRequest": 9, "ProduceRequest": 9}
NEVER_MS = -1
"""No timestamp: Kafka's own mark for it."""

Answer = TypeVar("Answer", bound=Message)
Place = tuple[str, int]
"""Topic and partition."""


class Connection:
    """A raw client: one request after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: Message) -> None:
        """A request; its answer is to be read later."""
        version = VERSIONS[type(request).__name__]
        head = write_request_header(request.API_KEY, version, 1, "bench")
        frame = head + encode(request, version)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def read(self, request: Message, kind: type[Answer]) -> Answer:
        """The answer to what was sent last."""
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        version = VERSIONS[type(request).__name__]
        _, body = read_response_header(request.API_KEY, version, frame)
        return decode(kind, version, frame, body)

    def ask(self, request: Message, kind: type[Answer]) -> Answer:
        """Both."""
        self.send(request)
        return self.read(request, kind)

    def close(self) -> None:
        """Ends."""
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the node closed the connection")
            data += more
        return bytes(data)


class Nodes:
    """The processes."""

    def __init__(self, directory: Path, durability: str, *options: str) -> None:
        self._directory = directory
        self._durability = durability
        self._options = options
        self._base = free_ports(2 * len(NODES))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def port(self, node: int) -> int:
        """Where its clients connect."""
        return self._base + node - 1

    def data(self, node: int) -> Path:
        """Where it keeps everything."""
        return self._directory / f"node-{node}"

    def launch(self, node: int) -> None:
        """Starts it."""
        peers = ",".join(f"{one}@{HOST}:{self._base + 2 + one}" for one in NODES)
        command = [sys.executable, "-m", "chronik", "up", "--durability", self._durability]
        command += ["--node-id", str(node), "--port", str(self.port(node)), "--peers", peers]
        command += ["--peer-port", str(self._base + 2 + node)]
        command += ["--data", str(self.data(node)), *self._options]
        with (self._directory / f"node-{node}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=BENCH.parent)
        self.processes[node] = process

    @contextlib.contextmanager
    def running(self) -> Iterator["Nodes"]:
        """All of them."""
        try:
            for node in NODES:
                self.launch(node)
            for node in NODES:
                wait_for_port(self.port(node))
            yield self
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()

    def kill(self, node: int) -> None:
        """As a crash does."""
        process = self.processes.pop(node)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def states(connection: Connection) -> tuple[dict[Place, metadata.MetadataResponsePartition], int]:
    """Every partition of the bench's topics as a node knows it, and the controller."""
    request = metadata.MetadataRequest(topics=None)
    said = connection.ask(request, metadata.MetadataResponse)
    found = {
        (topic.name or "", one.partition_index): one
        for topic in said.topics
        if not topic.is_internal
        for one in topic.partitions
    }
    return found, said.controller_id


def create(connection: Connection, partitions: int) -> None:
    """Topics with three replicas of each partition."""
    for number in range(-(-partitions // PARTITIONS_PER_TOPIC)):
        count = min(PARTITIONS_PER_TOPIC, partitions - number * PARTITIONS_PER_TOPIC)
        topic = create_topics.CreatableTopic(f"topic-{number}", count, len(NODES))
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        (said,) = connection.ask(request, create_topics.CreateTopicsResponse).topics
        if said.error_code:
            raise RuntimeError(f"not created: {said.error_message}")


def batches(places: list[Place]) -> produce.ProduceRequest:
    """One record for each, acknowledged by all in-sync replicas."""
    batch = bytes(build_batch([(None, b"one record")], NEVER_MS))
    topics: dict[str, list[produce.PartitionProduceData]] = defaultdict(list)
    for topic, index in places:
        topics[topic].append(produce.PartitionProduceData(index=index, records=batch))
    data = [produce.TopicProduceData(name=one, partition_data=many) for one, many in topics.items()]
    return produce.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=data)


def acknowledged(nodes: Nodes, open_places: set[Place], dead: int) -> set[Place]:
    """Tries each partition once at its leader; those that took the record."""
    connections = {node: Connection(nodes.port(node)) for node in nodes.processes}
    try:
        found, _ = states(next(iter(connections.values())))
        by_leader: dict[int, list[Place]] = defaultdict(list)
        for place in open_places:
            if place in found and found[place].leader_id not in {dead, -1}:
                by_leader[found[place].leader_id].append(place)
        requests = {leader: batches(places) for leader, places in by_leader.items()}
        for leader, request in requests.items():
            connections[leader].send(request)
        done = set()
        for leader, request in requests.items():
            said = connections[leader].read(request, produce.ProduceResponse)
            for topic in said.responses:
                done |= {
                    (topic.name, p.index) for p in topic.partition_responses if not p.error_code
                }
        return done
    finally:
        for connection in connections.values():
            connection.close()


def write_everywhere(nodes: Nodes, places: set[Place], dead: int = 0) -> list[float]:
    """Seconds until each of them took a record, in order."""
    began, took, left = time.perf_counter(), [], set(places)
    while left:
        done = acknowledged(nodes, left, dead)
        left -= done
        took += [time.perf_counter() - began] * len(done)
        if time.perf_counter() - began > READY_SECONDS_MAX:
            raise RuntimeError(f"{len(left)} partitions take no record: {sorted(left)[:5]} ...")
        time.sleep(ASK_AGAIN_SECONDS if left else 0)
    return took


def wait_for_isr(connection: Connection, partitions: int) -> float:
    """Seconds until every replica is in sync."""
    began = time.perf_counter()
    while True:
        found, _ = states(connection)
        full = sum(len(one.isr_nodes) == len(NODES) for one in found.values())
        if full == len(found) == partitions:
            return time.perf_counter() - began
        if time.perf_counter() - began > READY_SECONDS_MAX:
            raise RuntimeError(f"only {full} of {partitions} partitions are in sync")
        time.sleep(ASK_AGAIN_SECONDS)


def shares(nodes: Nodes, seconds: float) -> dict[int, float]:
    """Of a core, by node, over that time."""
    pids = {node: process.pid for node, process in nodes.processes.items()}
    before = {node: cpu_seconds([pid]) for node, pid in pids.items()}
    time.sleep(seconds)
    return {node: (cpu_seconds([pid]) - before[node]) / seconds for node, pid in pids.items()}


def tell_idle(nodes: Nodes) -> None:
    """What each node takes while nobody asks anything."""
    began, calm = time.perf_counter(), 0
    while calm < SETTLED_LOOKS and time.perf_counter() - began < SETTLE_SECONDS_MAX:
        share = max(shares(nodes, SETTLE_SECONDS).values())
        calm = calm + 1 if share < SETTLED_SHARE else 0
    say(f"settled after {time.perf_counter() - began:.0f} s")
    for node, share in shares(nodes, IDLE_SECONDS).items():
        mib = anonymous_bytes([nodes.processes[node].pid]) / 2**20
        say(f"idle, node {node}: {share:.1%} of a core, {mib:.0f} MiB")


def fail_over(nodes: Nodes, victim: str) -> None:
    """Kills a node and writes to all that it led."""
    connection = Connection(nodes.port(1))
    found, controller = states(connection)
    connection.close()
    counts = Counter(one.leader_id for one in found.values())
    others = [node for node in NODES if node != controller]
    dead = controller if victim == "controller" else max(others, key=counts.__getitem__)
    led = {place for place, one in found.items() if one.leader_id == dead}
    nodes.kill(dead)
    took = write_everywhere(nodes, led, dead)
    role = ", the controller," if victim == "controller" else ""
    say(
        f"kill -9 of node {dead}{role} which led {len(led)}: writable again after "
        f"{statistics.median(took):.2f} s (median), {max(took):.2f} s (all)"
    )


def measure(partitions: int, durability: str, victim: str) -> None:
    """Prints a few lines."""
    work = Chronik("os").work_directory()
    with (
        tempfile.TemporaryDirectory(dir=work) as made,
        Nodes(Path(made), durability).running() as nodes,
    ):
        connection = Connection(nodes.port(1))
        began = time.perf_counter()
        create(connection, partitions)
        created = time.perf_counter() - began
        synced = wait_for_isr(connection, partitions)
        filled = max(write_everywhere(nodes, set(states(connection)[0])))
        say(
            f"{partitions} partitions with 3 replicas: created in {created:.2f} s, all in sync "
            f"{synced:.2f} s later, one record in each in {filled:.2f} s"
        )
        connection.close()
        tell_idle(nodes)
        fail_over(nodes, victim)
