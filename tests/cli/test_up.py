"""`chronik up --nodes N`: which ports it takes, what it refuses, where its status pages are."""

import contextlib
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.servers import HOST

from chronik.cli import main
from chronik.cli._supervisor import plan
from chronik.cli.up import note_other_data
from chronik.lab.cluster import free_ports

NODES = 3
STOP_SECONDS_MAX = 20.0


def test_a_plan_gives_each_node_its_ports() -> None:
    ports = [(one.port, one.peer_port, one.http_port) for one in plan(NODES, 9092, "d", 8080)]
    assert ports == [(9092, 9095, 8080), (9093, 9096, 8081), (9094, 9097, 8082)]
    assert [one.http_port for one in plan(NODES, 9092, "d")] == [None] * NODES


def refused(data: Path, *options: str) -> str:
    """What is said to options that are refused before anything is started."""
    command = ["up", "--nodes", str(NODES), "--data", str(data), *options]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2, result.output
    assert not data.exists(), "nothing was opened"
    return result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--http-port", "0"), "a fixed --http-port"),
        (("--http-port", "0"), "choose one from 9098 to 65533"),
        (("--http-port", "9090"), "choose one from 9098 to 65533"),  # its last page
        (("--http-port", "9092"), "beside 9092 to 9097"),
        (("--http-port", "9097"), "choose one from 9098 to 65533"),  # its first page
        (("--http-port", "65534"), "choose one from 9098 to 65533"),
        (("--http-port", "65534", "--port", "65530"), "choose one from 1 to 65527"),
        (("--http-port", "65528", "--port", "65530"), "choose one from 1 to 65527"),
        (("--port", "0", "--http-port", "8080"), "a fixed --port"),
        (("--host", "0.0.0.0"), "'chronik node --config FILE'"),
    ],
)
def test_addresses_that_cannot_work_are_refused_with_what_to_choose(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    assert words in refused(tmp_path / "data", *options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--node-id", "1"),  # also what would be the default: it was meant to say something
        ("--peers", "1@127.0.0.1:9192"),
        ("--peer-port", "0"),
        ("--advertise", "example.org"),
    ],
)
def test_options_of_one_node_are_refused(tmp_path: Path, option: str, value: str) -> None:
    said = refused(tmp_path / "data", option, value)
    assert f"{option} is for one node" in said
    assert "'chronik node --config FILE'" in said


@contextlib.contextmanager
def cluster(data: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "chronik", "up", "--nodes", str(NODES), "--data", str(data)]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    with process:  # closes its pipe
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS_MAX)


def greeting(process: "subprocess.Popen[str]") -> str:
    """Everything that is said up to the line after which nothing more comes."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if "chronik verify" in line:
            break
    return said


@pytest.mark.integration
@pytest.mark.parametrize("below", [True, False])
def test_every_node_has_a_status_page_and_the_greeting_names_it(
    tmp_path: Path, below: bool
) -> None:
    """The pages right below the nodes' own ports, and right above them: neither overlaps."""
    first = free_ports(3 * NODES)
    port, http_port = (first + NODES, first) if below else (first, first + 2 * NODES)
    options = ("--port", str(port), "--http-port", str(http_port), "--durability", "os")
    with cluster(tmp_path / "data", *options) as process:
        said = greeting(process)
        pages = re.findall(r"status page on (\S+)", said)
        assert pages == [f"http://{HOST}:{http_port + i}/" for i in range(NODES)], said
        for number, page in enumerate(pages, start=1):
            with urllib.request.urlopen(page, timeout=10) as answer:
                assert f"node {number}" in answer.read().decode().lower()
            with urllib.request.urlopen(f"{page}health", timeout=10) as answer:
                assert answer.status == 200


def test_an_empty_directory_name_is_refused() -> None:
    result = CliRunner().invoke(main, ["up", "--data", ""])
    assert result.exit_code == 2
    assert "--data is empty" in result.stderr


@pytest.mark.parametrize(
    ("nodes", "held", "said"), [(NODES, ".", "a single node"), (1, "node-1", "a cluster")]
)
def test_data_that_this_start_does_not_show_is_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: int, held: str, said: str
) -> None:
    (tmp_path / held).mkdir(exist_ok=True)
    (tmp_path / held / "meta.properties").touch()
    note_other_data(nodes, str(tmp_path))
    assert f"holds the data of {said}" in capsys.readouterr().err
    note_other_data(NODES + 1 - nodes, str(tmp_path))
    assert not capsys.readouterr().err
