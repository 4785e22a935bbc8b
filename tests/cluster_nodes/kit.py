"""A cluster of three real processes that can be killed, stopped, wiped and cut off."""

import contextlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.cluster_nodes.machines import Machines
from tests.cluster_nodes.proxies import Network
from tests.faults.nodes import frame_of, newest, response_class
from tests.servers import HOST, answers

from chronik.lab.cluster import free_ports
from chronik.model.errors import ErrorCode
from chronik.wire.codec import decode
from chronik.wire.headers import read_response_header
from chronik.wire.messages import create_topics, delete_topics
from chronik.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from chronik.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from chronik.wire.records import scan
from chronik.wire.schema import Message

NODES = (1, 2, 3)
READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0
SECONDS_MAX = 20.0


def eventually(
    condition: Callable[[], Any], seconds: float = SECONDS_MAX, what: str = "it"
) -> float:
    """Polls until the condition holds; returns the seconds that it took."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(OSError, KeyError):  # nodes that are down, topics not known yet
            if condition():
                return time.monotonic() - began
        assert time.monotonic() - began < seconds, f"{what} did not happen in {seconds} s"
        time.sleep(0.01)


def ask(port: int, request: Message, version: int | None = None, seconds: float = 15.0) -> Any:
    """One request on a connection of its own."""
    version = newest(request) if version is None else version
    frame = frame_of(request, version)
    with socket.create_connection((HOST, port), timeout=seconds) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        answer = _exactly(connection, size)
    _, body = read_response_header(request.API_KEY, version, answer)
    return decode(response_class(type(request)), version, answer, body)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the node closed the connection")
        data += more
    return data


class Cluster:
    """Three nodes; `running()` starts them and ends them whatever happens."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        durability: str = "os",
        proxied: bool = False,
        faulty: bool = False,
        min_insync: int = 2,
    ) -> None:
        self.directory = directory
        base = free_ports(9)
        self.ports = {node: base + node - 1 for node in NODES}
        self.peer_ports = {node: base + 2 + node for node in NODES}
        self.http_ports = {node: base + 5 + node for node in NODES}
        self.network = Network(self.peer_ports) if proxied else None
        self.machines = Machines(directory, NODES) if faulty else None
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._logs_read: dict[int, int] = {}
        self._options = (
            "--durability",
            durability,
            "--set=default.replication.factor=3",
            f"--set=min.insync.replicas={min_insync}",
            "--set=offsets.topic.num.partitions=3",
            "--set=group.initial.rebalance.delay.ms=0",
            *options,
        )

    # -- processes

    def launch(self, *nodes: int) -> None:
        """Starts processes and does not wait for them."""
        for node in nodes:
            data = self.data(node)
            data.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "chronik", "up", "--node-id", str(node)]
            command += ["--port", str(self.ports[node]), "--data", str(data)]
            command += ["--peer-port", str(self.peer_ports[node]), "--peers", self._peers(node)]
            options = [one.replace("{node}", str(node)) for one in self._options]
            command += ["--http-port", str(self.http_ports[node]), *options]
            environment = self.machines.environment(node) if self.machines else None
            with self.log_path(node).open("ab") as log:
                self._processes[node] = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
                )

    def _peers(self, node: int) -> str:
        ports = dict(self.peer_ports)
        if self.network is not None:
            ports |= {other: self.network.port(node, other) for other in NODES if other != node}
        return ",".join(f"{other}@{HOST}:{port}" for other, port in ports.items())

    def start(self, *nodes: int) -> None:
        """Starts nodes and waits until each serves clients."""
        self.launch(*nodes)
        self.wait_ready(*nodes)

    def wait_ready(self, *nodes: int, seconds: float = READY_SECONDS_MAX) -> float:
        began = time.monotonic()
        for node in nodes:
            while not answers(self.ports[node]):
                assert self._processes[node].poll() is None, f"dead:\n{self.log_tail(node)}"
                assert time.monotonic() - began < seconds, f"late:\n{self.log_tail(node)}"
                time.sleep(0.01)
        return time.monotonic() - began

    def pid(self, node: int) -> int:
        return self._processes[node].pid

    def signal(self, node: int, number: signal.Signals) -> None:
        self._processes[node].send_signal(number)

    def kill(self, *nodes: int) -> None:
        """As a crash of the process does."""
        for node in nodes:
            self.signal(node, signal.SIGKILL)
        for node in nodes:
            self._processes.pop(node).wait()

    def stop(self, *nodes: int) -> float:
        """In order, with SIGTERM; the seconds that it took."""
        began = time.monotonic()
        for node in nodes:
            self.signal(node, signal.SIGTERM)
        for node in nodes:
            process = self._processes.pop(node)
            try:
                code = process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(
                    f"node {node} ignored SIGTERM:\n{self.log_tail(node)}"
                ) from None
            assert code == 0, f"node {node} ended with {code}:\n{self.log_tail(node)}"
        return time.monotonic() - began

    def pause(self, node: int) -> None:
        self.signal(node, signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self.signal(node, signal.SIGCONT)

    def wipe(self, node: int) -> None:
        """Takes the disk of a node that is down away."""
        assert node not in self._processes
        shutil.rmtree(self.data(node))

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        if self.network is not None:
            self.network.close()

    def mend(self, seconds: float = SECONDS_MAX) -> None:
        """All three nodes up and in sync again, whatever a test has left."""
        if self.network is not None:
            self.network.heal()
        if self.machines is not None:
            self.machines.heal()
        for node, process in list(self._processes.items()):
            process.send_signal(signal.SIGCONT)
            if process.poll() is not None:
                del self._processes[node]
        missing = [node for node in NODES if node not in self._processes]
        self.start(*missing)
        for topic in self.metadata().topics:
            self.wait_full_isr(topic.name, seconds)

    @contextlib.contextmanager
    def running(self) -> Iterator["Cluster"]:
        try:
            self.start(*NODES)
            yield self
            self.check_logs()
        finally:
            self.close()

    # -- files

    def data(self, node: int) -> Path:
        return self.directory / f"node-{node}"

    def log_path(self, node: int) -> Path:
        return self.directory / f"node-{node}.log"

    def log_tail(self, node: int) -> str:
        path = self.log_path(node)
        return path.read_text(errors="replace")[-4000:] if path.exists() else "(no log)"

    def check_logs(self) -> None:
        """No node met anything, since this was last asked, that its authors had not thought of."""
        for node in NODES:
            path = self.log_path(node)
            text = path.read_text(errors="replace") if path.exists() else ""
            at = text.find("Traceback", self._logs_read.get(node, 0))
            self._logs_read[node] = len(text)
            assert at < 0, f"node {node}:\n{text[max(0, at - 500) : at + 3000]}"

    def log_bytes(self, node: int, topic: str, partition: int, end_offset: int) -> bytes:
        """What a node's segment files hold, up to an offset."""
        folder = self.data(node) / "topics" / f"{topic}-{partition}"
        data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        view, size = memoryview(data), 0
        for position, header in scan(view):
            if header.base_offset >= end_offset:
                break
            size = position + header.size
        return data[:size]

    # -- metadata

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def any_port(self) -> int:
        return next(self.ports[node] for node in self._processes)

    def metadata(self, *topics: str, port: int | None = None) -> Any:
        wanted = [MetadataRequestTopic(name=topic) for topic in topics] if topics else None
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return ask(port or self.any_port(), request, seconds=5)

    def partitions(self, topic: str, port: int | None = None) -> dict[int, Any]:
        (found,) = self.metadata(topic, port=port).topics
        return {one.partition_index: one for one in found.partitions}

    def leader(self, topic: str, partition: int = 0, port: int | None = None) -> int:
        return int(self.partitions(topic, port)[partition].leader_id)

    def followers(self, topic: str, partition: int = 0) -> list[int]:
        return [node for node in NODES if node != self.leader(topic, partition)]

    def controller(self, port: int | None = None) -> int:
        return int(self.metadata(port=port).controller_id)

    def create(self, topic: str, partitions: int = 1, rf: int = 3, **configs: str) -> None:
        wanted = create_topics.CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=rf,
            configs=[
                create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        request = create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
        (result,) = ask(self.any_port(), request).topics
        assert result.error_code == 0, (ErrorCode(result.error_code), result.error_message)
        self.wait_full_isr(topic)

    def delete(self, topic: str, port: int | None = None) -> None:
        request = delete_topics.DeleteTopicsRequest(topic_names=[topic])
        (result,) = ask(port or self.any_port(), request, 5).responses
        assert result.error_code == 0, ErrorCode(result.error_code)

    def wait_full_isr(self, topic: str, seconds: float = SECONDS_MAX) -> float:
        """Until every running node says so: a leader that has not heard of it yet refuses."""

        def full() -> bool:
            views = [self.partitions(topic, self.ports[node]) for node in self._processes]
            return all(views) and all(
                set(one.isr_nodes) == set(one.replica_nodes) and one.leader_id >= 0
                for view in views
                for one in view.values()
            )

        return eventually(full, seconds, f"a full ISR of {topic}")

    def end_offset(
        self, topic: str, partition: int = 0, port: int | None = None, seconds: float = 15.0
    ) -> int:
        """The high watermark as ListOffsets tells it."""
        return self.list_offset(topic, partition, -1, port, seconds)

    def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        port: int | None = None,
        seconds: float = 15.0,
    ) -> int:
        wanted = ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
        )
        topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        (answer,) = ask(port or self.any_port(), request, 7, seconds).topics[0].partitions
        if answer.error_code:
            raise ConnectionError(ErrorCode(answer.error_code).name)
        return int(answer.offset)

    def metrics(self, node: int) -> dict[str, float]:
        """Every sample of /metrics by its name with labels."""
        url = f"http://{HOST}:{self.http_ports[node]}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def check_replicas_equal(self, topic: str, nodes: Sequence[int] = NODES) -> None:
        """The bytes of all replicas, up to the watermark, once all have caught up."""
        self.wait_full_isr(topic)
        for partition in self.partitions(topic):
            end = self.end_offset(topic, partition)
            wanted = self.log_bytes(self.leader(topic, partition), topic, partition, end)
            for node in nodes:
                eventually(
                    lambda node=node, partition=partition, end=end, wanted=wanted: (  # type: ignore[misc]
                        self.log_bytes(node, topic, partition, end) == wanted
                    ),
                    5,
                    f"equal bytes of {topic}-{partition} on node {node}",
                )
