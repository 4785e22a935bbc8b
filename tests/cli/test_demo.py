"""`chronik demo`: however it ends, nothing runs on; and it says what is missing."""

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from chronik.cli import main
from chronik.cli._demo_place import MARK, choosing_ports, free_ports, own_folder
from chronik.cli.demo import suggestions

SECONDS_MAX = 120.0
MARKER = "CHRONIK_DEMO_TEST"


class Run:
    """A demo as a process of its own, whose descendants can be told by their environment."""

    def __init__(self, folder: Path, *options: str, java: bool = False) -> None:
        self._mark = uuid.uuid4().hex
        folder.parent.mkdir(exist_ok=True)
        self.folder = folder
        environment = os.environ | {MARKER: self._mark, "PYTHONUNBUFFERED": "1"}
        if not java:
            environment["JAVA_HOME"] = str(folder.parent / "no-java")
        command = [sys.executable, "-m", "chronik", "demo", "--out", str(folder), *options]
        self._output = folder.parent / f"{self._mark}.txt"
        with self._output.open("wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)

    def wait_for(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not true():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def end(self) -> int:
        return self.process.wait(SECONDS_MAX)

    @property
    def output(self) -> str:
        return self._output.read_text()

    def left(self) -> list[int]:
        """Processes that still run, of all that were ever started."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                mine = f"{MARKER}={self._mark}".encode() in (place / "environ").read_bytes()
            except OSError:
                continue
            if mine:
                found.append(int(place.name))
        return found

    def gone(self) -> bool:
        """A JVM takes a moment to notice that its parent ended."""
        deadline = time.monotonic() + 20
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.left()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts demos; a failed test leaves none behind."""
    started: list[Run] = []

    def start(*options: str, java: bool = False) -> Run:
        started.append(Run(tmp_path / "run", *options, java=java))
        return started[-1]

    yield start
    for run in started:
        for pid in run.left():
            os.kill(pid, signal.SIGKILL)
        run.process.wait()


def test_a_folder_that_is_not_a_demos_own_is_refused(tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work")
    told = CliRunner().invoke(main, ["demo", "--out", str(tmp_path)])
    assert (told.exit_code, "--out" in told.output) == (2, True)
    assert precious.read_text() == "years of work"


def test_the_folder_of_an_earlier_demo_is_emptied(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with own_folder(folder):
        (folder / "data").mkdir()
        (folder / "report.html").touch()
    with own_folder(folder):
        assert [one.name for one in folder.iterdir()] == [MARK]


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with own_folder(tmp_path / "run"):
        told = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "run")])
    assert (told.exit_code, "another demo" in told.output) == (2, True)


def test_ports_that_are_taken_are_left_alone() -> None:
    first = free_ports(4)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", first + 2))
        taken.listen()
        assert first + 2 not in range(free_ports(4, first), free_ports(4, first) + 4)


def test_demos_choose_their_ports_in_turn() -> None:
    with choosing_ports():
        (turn,) = Path(tempfile.gettempdir()).glob(f"chronik-demo-ports-{os.getuid()}")
        with turn.open("a") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_it_suggests_can_be_typed() -> None:
    for _, line in suggestions("chronik-run", has_table=True):
        words = re.findall(r"\w[\w-]*", line.partition('"')[0])
        assert words[0] == "chronik"
        assert main.get_command(None, words[1]) is not None  # type: ignore[arg-type]


@pytest.mark.integration
def test_without_java_the_first_half_is_done_and_it_says_what_to_install(
    begin: Callable[..., Run],
) -> None:
    run = begin("--messages", "5000")
    assert run.end() == 0, run.output
    assert "Java 17" in run.output
    assert "5,000 of 5,000 (100.00%)" in run.output
    assert "PASS" in run.output
    assert "Try next" in run.output
    assert 'id="verdict"' in (run.folder / "report.html").read_text()
    assert run.gone()


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_node_is_away_leaves_nothing_running(
    begin: Callable[..., Run], number: signal.Signals
) -> None:
    run = begin("--messages", "200000")
    run.wait_for(lambda: len(run.left()) == 4)  # the demo and its three nodes
    run.wait_for(lambda: len(run.left()) == 3)  # one of them was killed
    run.process.send_signal(number)
    assert run.end() == 128 + number, run.output
    assert run.gone()
    assert "Traceback" not in run.output


@pytest.mark.integration
def test_demos_that_start_together_do_not_take_each_other_for_their_own(tmp_path: Path) -> None:
    runs = [Run(tmp_path / name / "run", "--messages", "5000") for name in ("a", "b")]
    for run in runs:
        assert run.end() == 0, run.output
        assert "5,000 of 5,000 (100.00%)" in run.output
        assert run.gone()


@pytest.mark.integration
def test_a_cluster_that_does_not_start_is_told_and_leaves_nothing_running(
    begin: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / MARK).touch()
    run = begin("--messages", "5000", "--nodes", "3")
    run.wait_for(lambda: len(run.left()) == 4)
    for pid in run.left():
        if pid != run.process.pid:
            os.kill(pid, signal.SIGKILL)
    assert run.end() == 1
    assert "node.log" in run.output
    assert "Traceback" not in run.output
    assert run.gone()


@pytest.mark.soak
@pytest.mark.integration
def test_the_whole_of_it(begin: Callable[..., Run]) -> None:
    run = begin("--messages", "20000", java=True)
    assert run.process.wait(280) == 0, run.output
    assert "20,000 acknowledged, 20,000 in the log, 20,000 in the table" in run.output
    assert run.gone()
