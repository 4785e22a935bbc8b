"""Servers to measure: each starts on fresh data, names its processes, and is gone afterwards."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from chronik.lab.cluster import free_ports

BENCH = Path(__file__).resolve().parent
KAFKA_SH = BENCH / "kafka.sh"
HOST = "127.0.0.1"
STOP_SECONDS_MAX = 30


class MissingError(Exception):
    """Something has to be installed first."""


class Contestant(ABC):
    """One kind of server in one setting."""

    name: str
    nodes: int = 1

    def prepare(self) -> None:  # noqa: B027
        """Installs what is missing; raises MissingError where that cannot work."""

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, list[int]]]:
        """Bootstrap address and process ids of a server with empty data, not yet asked anything."""
        directory = Path(tempfile.mkdtemp(prefix="bench-", dir=self.work_directory()))
        try:
            with self.started(directory) as found:
                yield found
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def work_directory(self) -> Path:
        """On the project's own disk: a temporary directory may be memory, which syncs for free."""
        path = BENCH / "work"
        path.mkdir(exist_ok=True)
        return path

    @abstractmethod
    def started(
        self, directory: Path
    ) -> contextlib.AbstractContextManager[tuple[str, list[int]]]: ...


class Chronik(Contestant):
    """Chronik: one node, or a cluster under one supervising process."""

    def __init__(self, durability: str, *options: str, nodes: int = 1) -> None:
        self.name = f"chronik {durability}"
        self.durability = durability
        self.options = options
        self.nodes = nodes
        self.program = [sys.executable, "-m", "chronik"]

    @contextlib.contextmanager
    def started(self, directory: Path) -> Iterator[tuple[str, list[int]]]:
        port = free_ports(self.nodes)
        where = ["--port", str(port), "--data", str(directory / "data"), "--nodes", str(self.nodes)]
        command = [*self.program, "up", "--durability", self.durability, *where, *self.options]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=BENCH.parent)
        try:
            yield ",".join(f"{HOST}:{port + n}" for n in range(self.nodes)), [process.pid]
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Kafka(Contestant):
    """Apache Kafka with its own defaults (so no sync per write)."""

    name = "kafka"

    def __init__(self, nodes: int = 1) -> None:
        self.nodes = nodes
        self.home = Path(os.environ.get("KAFKA_DIR", BENCH.parent / ".peers" / "kafka"))

    def prepare(self) -> None:
        if shutil.which("java") is None:
            raise MissingError("Kafka needs Java 17 or newer: install a JDK, or use --only chronik")
        if (self.home / "libs").exists():
            return
        if shutil.which("mvn") is None:
            raise MissingError("Kafka's jars come with Maven: install mvn, or use --only chronik")
        subprocess.run([KAFKA_SH, "install", self.home], check=True)

    @contextlib.contextmanager
    def started(self, directory: Path) -> Iterator[tuple[str, list[int]]]:
        (directory / "libs").symlink_to((self.home / "libs").resolve())
        base = free_ports(2 * self.nodes)
        try:
            printed = run_script("start", directory, str(self.nodes), str(base))
            addresses = ",".join(f"{HOST}:{base + n}" for n in range(self.nodes))
            yield addresses, [int(pid) for pid in printed.split(",")]
        finally:
            run_script("stop", directory)


def run_script(command: str, directory: Path, *arguments: str) -> str:
    """Runs kafka.sh and returns what it printed."""
    line = [str(KAFKA_SH), command, str(directory), *arguments]
    return subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
