"""The cluster of `chronik demo`, and the accident that happens to it."""

import shutil
import threading
import time
from pathlib import Path

import click

from chronik.cli._demo_place import choosing_ports, free_ports
from chronik.cli._supervisor import Supervisor, plan

ATTEMPTS_MAX = 3
VICTIM = 2
KILL_AT = 0.3
RETURN_AFTER_S = 1.0


def started(nodes: int, folder: Path, durability: str) -> Supervisor:
    """A cluster that serves; other ports are tried where someone was faster."""
    with choosing_ports():
        return _started(nodes, folder, durability)


def _started(nodes: int, folder: Path, durability: str) -> Supervisor:
    first = 9092
    for _ in range(ATTEMPTS_MAX):
        first = free_ports(2 * nodes, first)
        cluster = _cluster(nodes, first, folder, durability)
        try:
            if cluster.start():
                return cluster
        except BaseException:
            cluster.stop()
            raise
        cluster.stop()
        if not _lost_a_port(folder):
            break
        shutil.rmtree(folder / "data", ignore_errors=True)
        first += 2 * nodes
    raise click.ClickException(f"the cluster did not start: see {folder}/data/*/node.log")


def _cluster(nodes: int, port: int, folder: Path, durability: str) -> Supervisor:
    options = ["--durability", durability, "--trace", "files"]
    options += [f"--set=default.replication.factor={min(3, nodes)}"]
    options += [f"--set=min.insync.replicas={min(2, nodes)}"]
    return Supervisor(plan(nodes, port, str(folder / "data")), "127.0.0.1", options)


def _lost_a_port(folder: Path) -> bool:
    logs = (folder / "data").glob("*/node.log")
    return any("is taken" in log.read_text(errors="replace") for log in logs)


class Accident:
    """Kills a node when enough was sent, and brings it back a moment later."""

    def __init__(self, cluster: Supervisor, at: int | None) -> None:
        self._cluster = cluster
        self._at = at
        self._back: threading.Timer | None = None
        self._lock = threading.Lock()
        self._over = False
        self._killed_s = 0.0
        self.killed_at: int | None = None
        """Messages that were sent when it happened."""
        self.away_s = 0.0

    def look(self, sent: int) -> None:
        """Called with the progress of the workload."""
        if self._at is not None and sent >= self._at and self._back is None:
            self._cluster.kill(VICTIM)
            self._killed_s = time.perf_counter()
            self.killed_at = sent
            self._back = threading.Timer(RETURN_AFTER_S, self._return)
            self._back.start()

    def _return(self) -> None:
        with self._lock:
            if not self._over:
                self._cluster.restart(VICTIM)
                self.away_s = time.perf_counter() - self._killed_s

    def wait(self) -> None:
        """Until the node is on its way back."""
        if self._back is not None:
            self._back.join()

    def call_off(self) -> None:
        """No node is started from now on."""
        with self._lock:
            self._over = True
        if self._back is not None:
            self._back.cancel()
