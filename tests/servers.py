"""Servers under test: Chronik as a child process, Apache Kafka through bench/kafka.sh.

Both answer on a free loopback port and keep their data over `restart()`; `serving()` ends them.
"""

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from typing_extensions import override

from chronik.lab.cluster import free_ports

ROOT: Final = Path(__file__).resolve().parent.parent
KAFKA_SH: Final = ROOT / "bench" / "kafka.sh"
START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 30.0
HOST: Final = "127.0.0.1"
SELDOM: Final = {"log.retention.check.interval.ms": 86_400_000}
"""For a server that many tests share: some write records of years ago, which retention would delete
under the test that happens to run every fifth minute."""

ServerName = Literal["chronik", "kafka"]

SERVES_GROUPS: Final[dict[ServerName, bool]] = {"chronik": True, "kafka": True}
"""The one switch of the tests marked `groups`."""

_API_VERSIONS_V0: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class ServerError(RuntimeError):
    """A server that did not start, or died; the message holds the end of its log."""


def kafka_dir() -> Path:
    """Where Kafka's jars are: KAFKA_DIR, else .peers/kafka under the project."""
    return Path(os.environ.get("KAFKA_DIR", ROOT / ".peers" / "kafka"))


def require(*programs: str) -> None:
    """Skips the test where a program is missing."""
    packages = {"java": "a JDK, version 17 or newer", "mvn": "Apache Maven", "kcat": "kcat"}
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on the path: install {packages.get(program, program)}")


def kafka_libs() -> Path:
    """Kafka's jars, fetched with Maven the first time; skips where that cannot work."""
    require("java")
    libs = kafka_dir() / "libs"
    if not libs.exists():
        require("mvn")
        done = subprocess.run(
            [KAFKA_SH, "install", kafka_dir()], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"Kafka's jars could not be fetched with mvn: {done.stderr[-500:]}")
    return libs


def answers(port: int) -> bool:
    """True once the server on `port` answers an ApiVersions request."""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(_API_VERSIONS_V0)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


class Server(ABC):
    """One server on one port."""

    name: ServerName

    def __init__(self, port: int, directory: Path) -> None:
        self.port = port
        self.directory = directory

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Returns once the server answers."""
        self.launch()
        limit = time.monotonic() + START_SECONDS_MAX
        while not answers(self.port):
            if not self.running():
                raise ServerError(f"{self.name} died while starting:\n{self.log_tail()}")
            if time.monotonic() > limit:
                raise ServerError(f"{self.name} does not answer:\n{self.log_tail()}")
            time.sleep(0.02)

    def restart(self) -> None:
        """An orderly stop and a start on the same port and data; a start alone if it is down."""
        if self.running():
            self.stop()
        self.start()

    def log_tail(self) -> str:
        """The last lines that the server wrote."""
        path = self.log_path()
        return path.read_text(errors="replace")[-4000:] if path.exists() else "(no log)"

    @property
    @abstractmethod
    def pid(self) -> int:
        """The server's process id, 0 if it is not running."""

    @abstractmethod
    def log_path(self) -> Path:
        """The file with its output."""

    @abstractmethod
    def running(self) -> bool:
        """False once the process has ended."""

    @abstractmethod
    def stop(self) -> None:
        """Asks the server to end and waits until it has."""

    @abstractmethod
    def kill(self) -> None:
        """Ends the server at once, as a crash would."""

    @abstractmethod
    def launch(self) -> None:
        """Starts the process without waiting for it."""


class Chronik(Server):
    """One Chronik node as a child process."""

    name = "chronik"

    def __init__(self, directory: Path, *options: str, durability: str = "os") -> None:
        super().__init__(free_ports(1), directory)
        seldom = [f"--set={key}={value}" for key, value in SELDOM.items()]
        self.options = ("--durability", durability, *seldom, *options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @override
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @override
    def log_path(self) -> Path:
        return self.directory / "chronik.log"

    @override
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @override
    def stop(self) -> None:
        self._end(signal.SIGTERM)

    @override
    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ServerError(f"chronik ignored {how.name}:\n{self.log_tail()}") from None

    @override
    def launch(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        port = ["--port", str(self.port)]
        data = ["--data", str(self.directory / "data")]
        command = [sys.executable, "-m", "chronik", "up", *port, *data, *self.options]
        with self.log_path().open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


class Kafka(Server):
    """One Apache Kafka node, broker and controller in one process."""

    name = "kafka"

    def __init__(self, directory: Path) -> None:
        super().__init__(free_ports(2), directory)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "libs").symlink_to(kafka_libs().resolve())

    @property
    @override
    def pid(self) -> int:
        return int(self._script("pids") or 0)

    @override
    def log_path(self) -> Path:
        return self.directory / "run" / "node1.log"

    @override
    def running(self) -> bool:
        return self.pid != 0

    @override
    def stop(self) -> None:
        self._script("stop")

    @override
    def kill(self) -> None:
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        while self.running():
            time.sleep(0.01)

    @override
    def launch(self) -> None:
        self._script("start", "1", str(self.port))

    def _script(self, command: str, *arguments: str) -> str:
        more = "\n".join(f"{key}={value}" for key, value in SELDOM.items())
        environment = {
            **os.environ,
            "KAFKA_HEAP": "-Xms256m -Xmx512m",
            "KAFKA_PROPERTIES": f"{os.environ.get('KAFKA_PROPERTIES', '')}\n{more}",
        }
        done = subprocess.run(
            [KAFKA_SH, command, self.directory, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout.strip()


def create(name: ServerName, directory: Path) -> Server:
    """The server of that name, not yet started."""
    return Chronik(directory) if name == "chronik" else Kafka(directory)


@contextlib.contextmanager
def serving(name: ServerName, directory: Path) -> Iterator[Server]:
    """A running server; one that died meanwhile is an error that shows its log."""
    server = create(name, directory)
    try:
        server.start()
        yield server
        if not server.running():
            raise ServerError(f"{name} died during the tests:\n{server.log_tail()}")
    finally:
        if server.running():
            server.stop()
