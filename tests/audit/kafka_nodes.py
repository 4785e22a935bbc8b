"""Three nodes of Apache Kafka that can be paused, killed and brought back, one by one."""

import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest
from tests.servers import HOST, KAFKA_SH, START_SECONDS_MAX, answers, kafka_dir, require

from chronik.lab.cluster import free_ports

NODES: Final = 3
PROPERTIES: Final = "broker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=500"
"""A dead broker is fenced after 3 s, not after 9: the tests wait for that."""


def require_kafka() -> None:
    """Skips where Kafka cannot run; fetching it is not a test's business."""
    require("java")
    if not (kafka_dir() / "libs").exists():
        pytest.skip(f"Kafka's jars are not here: {KAFKA_SH.name} install {kafka_dir().name}")


class KafkaNodes:
    """A cluster through bench/kafka.sh; nodes are numbered from 1."""

    def __init__(self, directory: Path) -> None:
        require_kafka()
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "libs").symlink_to((kafka_dir() / "libs").resolve())
        self.port = free_ports(2 * NODES)
        self._paused: set[int] = set()
        self._revived: list[subprocess.Popen[bytes]] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.port + node}" for node in range(NODES))

    def data(self, node: int) -> Path:
        return self.directory / "data" / f"node{node}"

    def __enter__(self) -> Self:
        self._script("start", str(NODES), str(self.port))
        for node in range(1, NODES + 1):
            self._await(node)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for node in range(1, NODES + 1):
            if self._alive(node):
                self._signal(node, signal.SIGKILL)
        for process in self._revived:
            process.wait()

    def pause(self, *nodes: int) -> None:
        for node in nodes:
            self._signal(node, signal.SIGSTOP)

    def resume(self, *nodes: int) -> None:
        for node in nodes:
            self._signal(node, signal.SIGCONT)

    def kill(self, node: int) -> None:
        self._signal(node, signal.SIGKILL)
        while self._alive(node):
            time.sleep(0.01)

    def revive(self, node: int) -> None:
        """With the settings that `kafka.sh start` wrote."""
        run = self.directory / "run"
        heap = ("-Xms128m", "-Xmx384m")
        logging = f"-Dlog4j2.configurationFile=file:{run / 'log4j2.properties'}"
        jars = ("-cp", f"{self.directory / 'libs'}/*", logging)
        settings = str(run / f"node{node}.properties")
        with (run / f"node{node}.log").open("ab") as log:
            process = subprocess.Popen(
                ["java", *heap, *jars, "kafka.Kafka", settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._revived.append(process)
        (run / f"node{node}.pid").write_text(str(process.pid))
        self._await(node)

    def _await(self, node: int) -> None:
        limit = time.monotonic() + START_SECONDS_MAX
        while not answers(self.port + node - 1):
            log = self.directory / "run" / f"node{node}.log"
            assert time.monotonic() < limit, log.read_text(errors="replace")[-3000:]
            time.sleep(0.05)

    def _pid(self, node: int) -> int:
        return int((self.directory / "run" / f"node{node}.pid").read_text())

    def _alive(self, node: int) -> bool:
        """Guards against a pid that was given to somebody else."""
        try:
            line = Path(f"/proc/{self._pid(node)}/cmdline").read_bytes()
        except OSError:
            return False
        return f"node{node}.properties".encode() in line

    def _signal(self, node: int, what: signal.Signals) -> None:
        if self._alive(node):
            os.kill(self._pid(node), what)

    def _script(self, command: str, *arguments: str) -> None:
        subprocess.run(
            [KAFKA_SH, command, self.directory, *arguments],
            env={
                **os.environ,
                "KAFKA_HEAP": "-Xms128m -Xmx384m",
                "KAFKA_PROPERTIES": PROPERTIES,
            },
            stdout=subprocess.PIPE,
            check=True,
        )
