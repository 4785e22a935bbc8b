"""`chronik up --nodes N`: one child process per node, stopped together."""

import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import click

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
WATCH_S = 0.1
"""Between two looks at nodes that serve: the parent should cost next to nothing."""
LOG_TAIL_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What one child is told."""

    node_id: int
    port: int
    peer_port: int
    data: str
    http_port: int | None = None
    """Of its status page, if it has one."""


def plan(nodes: int, port: int, data: str, http_port: int | None = None) -> list[NodePlan]:
    """Clients on the first N ports from `port` on, the nodes among themselves on the N after.

    Status pages, where they are wanted, on the N ports from `http_port` on.
    """
    return [
        NodePlan(
            i + 1,
            port + i,
            port + nodes + i,
            os.path.join(data, f"node-{i + 1}"),
            None if http_port is None else http_port + i,
        )
        for i in range(nodes)
    ]


def peers(plans: list[NodePlan], host: str) -> str:
    """The voters as `--peers` wants them."""
    return ",".join(f"{one.node_id}@{host}:{one.peer_port}" for one in plans)


class Supervisor:
    """The children of one `up`."""

    def __init__(self, plans: list[NodePlan], host: str, options: list[str]) -> None:
        self._plans = plans
        self._host = host
        self._options = options
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._starting: dict[int, int] = {}
        """Node to the pipe in which it will say that it serves."""
        self._stopping = False

    def run(self) -> int:
        """Starts all, waits until they serve, then until a signal or a death; stops all."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        try:
            failed = not self.start()
            if not failed and not self._stopping:
                self._greet()
                failed = self._wait_end()
            click.echo("Stopping ...", err=True)
        finally:
            self.stop()
        return 1 if failed else 0

    @property
    def bootstrap(self) -> str:
        """All nodes, for clients."""
        return ",".join(f"{self._host}:{one.port}" for one in self._plans)

    def start(self) -> bool:
        """Starts every node; True once all of them serve."""
        try:
            for one in self._plans:
                self._starting[one.node_id], said = os.pipe()
                try:
                    self._children[one.node_id] = self._start(one, said)
                finally:
                    os.close(said)
            return self._wait_ready()
        finally:
            for pipe in self._starting.values():
                os.close(pipe)
            self._starting.clear()

    def kill(self, node_id: int) -> None:
        """Ends a node as a power cut would."""
        child = self._children.pop(node_id)
        child.kill()
        child.wait()

    def restart(self, node_id: int) -> None:
        """Starts a node that was killed."""
        (one,) = [one for one in self._plans if one.node_id == node_id]
        self._children[node_id] = self._start(one)

    def _start(self, one: NodePlan, ready_fd: int | None = None) -> "subprocess.Popen[bytes]":
        try:
            os.makedirs(one.data, exist_ok=True)
            log_file = open(os.path.join(one.data, "node.log"), "ab")  # noqa: SIM115 - below
        except OSError as error:
            raise click.ClickException(
                f"cannot use {one.data} for data: {error.strerror}; name a directory that this "
                "user may write with --data"
            ) from error
        command = [sys.executable, "-m", "chronik", "up", "--host", self._host]
        command += ["--port", str(one.port), "--node-id", str(one.node_id), "--data", one.data]
        command += ["--peer-port", str(one.peer_port), "--peers", peers(self._plans, self._host)]
        if one.http_port is not None:
            command += ["--http-port", str(one.http_port)]
        if ready_fd is not None:
            command += ["--ready-fd", str(ready_fd)]
        with log_file:
            return subprocess.Popen(
                [*command, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                pass_fds=() if ready_fd is None else (ready_fd,),
                start_new_session=True,  # Ctrl-C reaches the parent alone, which stops them
            )

    def _wait_ready(self) -> bool:
        """Each node says it itself: what answers on its port may be somebody else's."""
        deadline = time.monotonic() + READY_TIMEOUT_S  # noqa: TID251 - no event loop here
        waiting = {pipe: node for node, pipe in self._starting.items()}
        while waiting and not self._stopping:
            for pipe in select.select(list(waiting), [], [], POLL_S)[0]:
                node = waiting.pop(pipe)
                if not os.read(pipe, 1):  # it ended, or is about to
                    self._children[node].wait()
                    self._dead()
                    return False
            if time.monotonic() > deadline:  # noqa: TID251
                click.echo("Error: the cluster did not start in time; see node.log", err=True)
                return False
        return True

    def _greet(self) -> None:
        bootstrap = self.bootstrap
        click.echo(f"Chronik cluster of {len(self._plans)} nodes on {bootstrap}", err=True)
        for one in self._plans:
            click.echo(
                f"  node {one.node_id}: {self._host}:{one.port}, "
                f"pid {self._children[one.node_id].pid}, data and node.log in {one.data}",
                err=True,
            )
            if one.http_port is not None:
                page = f"http://{self._host}:{one.http_port}/"
                click.echo(f"          status page on {page}", err=True)
        click.echo(
            f"Try it:  chronik topic create orders --partitions 3 --replication "
            f"{len(self._plans)} --bootstrap {bootstrap}\n"
            f"         chronik verify large-batch --bootstrap {bootstrap}",
            err=True,
        )

    def _wait_end(self) -> bool:
        """True when a child died of itself."""
        while not self._stopping:
            if self._dead():
                return True
            time.sleep(WATCH_S)
        return False

    def _dead(self) -> bool:
        """Says which child is gone; the others keep the cluster up while a majority lives."""
        gone = [node for node, child in self._children.items() if child.poll() is not None]
        for node in gone:
            code = self._children.pop(node).returncode
            where = next(one.data for one in self._plans if one.node_id == node)
            reason = _last_error(os.path.join(where, "node.log"))
            click.echo(f"Node {node} ended with code {code}; see {where}/node.log", err=True)
            if reason:
                click.echo(f"  {reason}", err=True)
        return not self._children or len(self._children) * 2 <= len(self._plans)

    def _on_signal(self, number: int, frame: object) -> None:
        self._stopping = True

    def stop(self) -> None:
        """Asks every node to stop, and makes sure of it."""
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _last_error(path: str) -> str:
    """What a node said when it could not go on; nothing where it said nothing."""
    try:
        with open(path, "rb") as log_file:
            size = log_file.seek(0, os.SEEK_END)
            log_file.seek(max(0, size - LOG_TAIL_BYTES))
            lines = log_file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in reversed(lines) if line.startswith("Error: ")), "")
