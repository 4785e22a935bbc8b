"""The nodes of one lab run: child processes with one defect, killed, started again, stopped."""

import contextlib
import secrets
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

HOST = "127.0.0.1"
SAME_HOST = (HOST, "127.0.1", "127.1")
"""One address in three spellings: librdkafka below 2.10 takes brokers of one name for one."""
READY_S_MAX = 30.0
STOP_S_MAX = 10.0
POLL_S = 0.02
LOG_SHOWN = 2000
PORTS = range(12_000, 32_000)
_API_VERSIONS = bytes.fromhex("0000000a0012000000000001ffff")
"""ApiVersions v0, correlation id 1, no client id: any node that serves answers it."""


class LabError(Exception):
    """The lab's own machinery failed; this says nothing about a defect."""


@dataclass(slots=True)
class LabCluster:
    """Use as a context: on leaving it every process has ended and every port is free."""

    folder: Path
    nodes: int = 1
    defect: str = ""
    faults: tuple[str, ...] = ()
    one_address: bool = False
    """All nodes tell clients the address of node 1, as behind a port-forward."""
    _port: int = 0
    _children: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __enter__(self) -> "LabCluster":
        self._port = free_ports(2 * self.nodes)
        try:
            for node in self._ids:
                self._launch(node)
            self.wait_ready(*self._ids)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _ids(self) -> range:
        return range(1, self.nodes + 1)

    @property
    def bootstrap(self) -> str:
        if self.one_address:
            return f"{HOST}:{self._port}"
        return ",".join(f"{HOST}:{self._port + node - 1}" for node in self._ids)

    @property
    def alive(self) -> list[int]:
        return sorted(self._children)

    def data(self, node: int) -> Path:
        return self.folder / f"node-{node}"

    def kill(self, node: int) -> None:
        """Ends a node at once, as a crash does."""
        child = self._children.pop(node)
        child.kill()
        _ended(child)

    def restart(self, node: int) -> None:
        """Starts a node again on its data; returns when it serves."""
        self._launch(node)
        self.wait_ready(node)

    def stop(self) -> None:
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            try:
                child.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                child.kill()
            _ended(child)

    def wait_ready(self, *nodes: int) -> None:
        deadline = time.perf_counter() + READY_S_MAX
        waiting = list(nodes)
        while waiting:
            for node in waiting:
                if self._children[node].poll() is not None:
                    raise LabError(f"node {node} died while starting:\n{self._log_tail(node)}")
            waiting = [node for node in waiting if not _answers(self._port + node - 1)]
            if time.perf_counter() > deadline:
                raise LabError(f"nodes {waiting} do not answer:\n{self._log_tail(waiting[0])}")
            time.sleep(POLL_S)

    def _launch(self, node: int) -> None:
        data = self.data(node)
        data.mkdir(parents=True, exist_ok=True)
        with (data / "node.log").open("ab") as log:
            self._children[node] = subprocess.Popen(
                [sys.executable, "-m", "chronik.lab.node", *self._options(node)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which stops them
            )

    def _options(self, node: int) -> list[str]:
        own, first_peer = self._port + node - 1, self._port + self.nodes
        # A node stops when the lab's end of its stdin is gone, whatever ended the lab.
        given = ["--until-eof", "--node-id", str(node), "--port", str(own)]
        given += ["--data", str(self.data(node))]
        if self.nodes > 1:
            peers = ",".join(f"{one}@{first_peer + one - 1}" for one in self._ids)
            given += ["--peer-port", str(first_peer + node - 1), "--peers", peers]
            given += ["--set", "min.insync.replicas=2"]
        if self.one_address:
            given += ["--advertise", f"{SAME_HOST[node - 1]}:{self._port}"]
        if self.defect:
            given += ["--defect", self.defect]
        return given + [word for fault in self.faults for word in ("--fault", fault)]

    def _log_tail(self, node: int) -> str:
        return (self.data(node) / "node.log").read_text(errors="replace")[-LOG_SHOWN:]


def _ended(child: "subprocess.Popen[bytes]") -> None:
    child.wait()
    assert child.stdin is not None
    child.stdin.close()


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports that nobody has.

    Below the range from which Linux gives ports to outgoing connections: those come any moment.
    """
    while True:
        port = PORTS.start + secrets.randbelow(len(PORTS) - count)
        with contextlib.ExitStack() as stack:
            try:
                for one in range(port, port + count):
                    stack.enter_context(socket.socket()).bind((HOST, one))
            except OSError:
                continue
            return port


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as probe:
            probe.sendall(_API_VERSIONS)
            return len(probe.recv(4)) == 4
    except OSError:
        return False
