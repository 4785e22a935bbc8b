"""What slips in at the keyboard or from a script: odd bytes, names given twice, a full disk."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner, Result

from chronik.cli import main
from chronik.embedded import EmbeddedBroker, embedded

Run = Callable[..., Result]
NUMBERS = count()
NO_UTF_8 = os.fsdecode(b"\xff")
SECONDS_MAX = 20.0


@pytest.fixture
def run(chronik_broker: EmbeddedBroker) -> Run:
    """Runs a command; the keyword `input` is its stdin."""
    environment = {"CHRONIK_BOOTSTRAP": chronik_broker.bootstrap}

    def invoke(*arguments: str, **options: Any) -> Result:
        return CliRunner(env=environment).invoke(main, arguments, **options)

    return invoke


@pytest.fixture
def topic(run: Run) -> str:
    """A new topic of one partition."""
    name = f"slips-{next(NUMBERS)}"
    assert run("topic", "create", name, "--partitions", "1").exit_code == 0
    return name


def chronik(
    broker: EmbeddedBroker, *arguments: str, **options: Any
) -> "subprocess.CompletedProcess[bytes]":
    """The same in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "chronik", *arguments],
        env={**os.environ, "CHRONIK_BOOTSTRAP": broker.bootstrap},
        stderr=subprocess.PIPE,
        timeout=SECONDS_MAX,
        check=False,
        **options,
    )


def test_a_topic_named_twice_is_deleted_once(run: Run, topic: str) -> None:
    result = run("topic", "delete", topic, topic)
    assert (result.exit_code, result.stderr) == (0, f"Deleted: {topic}\n")


@pytest.mark.parametrize("option", ["--partitions", "--replication"])
def test_numbers_that_no_topic_can_have_are_refused(run: Run, option: str) -> None:
    result = run("topic", "create", "huge", option, "1000000")
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr


@pytest.mark.parametrize("command", [("config", "delete", "--topic"), ("topic", "alter")])
def test_a_config_that_is_not_there_cannot_be_deleted(
    run: Run, topic: str, command: tuple[str, ...]
) -> None:
    key = ("--delete-config",) if command[0] == "topic" else ()
    result = run(*command, topic, *key, "retention.mss")
    assert result.exit_code == 1
    assert "has no config retention.mss. Did you mean 'retention.ms'" in result.stderr
    assert run(*command, topic, *key, "retention.ms").exit_code == 0


def test_arguments_are_bytes_as_the_shell_gave_them(run: Run, topic: str) -> None:
    options = ("--key", NO_UTF_8, "--header", f"a={NO_UTF_8}", "--null-value", NO_UTF_8)
    result = run("produce", topic, *options, input=b"x\n\xff\n")
    assert result.exit_code == 0, result.stderr
    first, second = map(json.loads, run("consume", topic, "--json").stdout.splitlines())
    assert first["key_base64"] == second["key_base64"] == "/w=="
    assert first["headers"] == [{"name": "a", "value_base64": "/w=="}]
    assert (first["value"], second["value"]) == ("x", None)
    assert run("consume", topic, "-n", "1", "--format", f"{NO_UTF_8}%v").stdout_bytes == b"\xffx"


def test_the_name_of_a_header_must_be_text(chronik_broker: EmbeddedBroker, topic: str) -> None:
    result = chronik(chronik_broker, "produce", topic, "--header", f"{NO_UTF_8}=1", input=b"x\n")
    assert result.returncode == 2
    assert b"is no UTF-8" in result.stderr


def test_a_header_may_come_twice(run: Run, topic: str) -> None:
    assert run("produce", topic, "--header", "a=1", "--header", "a=2", input="x").exit_code == 0
    assert run("consume", topic, "--format", "%h").stdout == "a=1,a=2"


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_an_empty_position_is_not_the_default(run: Run, topic: str, option: str) -> None:
    result = run("consume", topic, option, "")
    assert result.exit_code == 2
    assert "'' is none of: earliest, latest" in result.stderr


def test_no_groups_is_said_of_the_state_only_where_one_was_asked_for() -> None:
    with embedded() as broker:
        found = {
            option: CliRunner().invoke(main, ["group", "list", "-b", broker.bootstrap, *option])
            for option in ((), ("--state", "stable"))
        }
    assert found[()].stderr.startswith("No groups yet. A consumer")
    assert found["--state", "stable"].stderr == "No group is Stable.\n"


@pytest.mark.parametrize("command", [("topic", "list"), ("consume",)])
def test_a_full_disk_is_one_line(
    chronik_broker: EmbeddedBroker, run: Run, topic: str, command: tuple[str, ...]
) -> None:
    run("produce", topic, input="x\n")
    arguments = [*command, topic] if command == ("consume",) else command
    with open("/dev/full", "wb") as full:
        result = chronik(chronik_broker, *arguments, stdout=full)
    assert result.returncode == 1
    assert result.stderr == b"Error: the output could not be written: No space left on device\n"


def test_a_narrow_terminal_breaks_neither_names_nor_numbers(
    chronik_broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    parent, child = pty.openpty()
    with os.fdopen(parent, "rb", buffering=0) as terminal:
        chronik(chronik_broker, "topic", "describe", topic, stdout=child)
        os.close(child)
        shown = terminal.read(65_536).decode()
    for name in ("partition", "leader", "replicas", "records"):
        assert name in shown


def test_ctrl_c_is_no_finding_of_a_simulation() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "chronik", "simulate", "--seeds", "1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()  # it is under way
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, errors) == (130, b"")


def test_verify_knows_the_cluster_from_the_environment_as_all_commands_do() -> None:
    environment = {"CHRONIK_BOOTSTRAP": "localhost:1"}
    result = CliRunner(env=environment).invoke(main, ["verify", "large-batch"])
    assert result.exit_code == 2
    assert "localhost:1 (connection refused)" in result.stderr


def test_examples_are_a_line_each() -> None:
    shown = CliRunner().invoke(main, ["diagnose", "--help"]).stdout
    assert "  chronik diagnose --logs node1.log node2.log\n  chronik diagnose --traces" in shown
