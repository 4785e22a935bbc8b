"""The commands: what they print, and what they say when something is missing."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.pipeline.kit import Log, numbered

from chronik.cli import main
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.warehouse import Warehouse


@pytest.mark.parametrize(
    "command",
    [
        ["pipeline", "ingest", "t", "--once"],
        ["pipeline", "prove", "t"],
        ["sql", "SELECT 1", "--cold", "--engine", "spark"],
    ],
)
def test_without_java_a_command_says_what_to_install(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    told = CliRunner().invoke(main, command)
    assert told.exit_code == 1
    assert "Java 17" in told.output
    assert "Traceback" not in told.output


def test_without_java_a_small_question_is_answered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    told = CliRunner().invoke(main, ["sql", "SELECT 1 AS one", "--cold", "-w", str(tmp_path)])
    assert (told.exit_code, told.stdout.split()) == (0, ["ONE", "1"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM chronik.nodes", "there are audits"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELEC 1", "SELEC"),
    ],
)
def test_a_query_that_cannot_be_answered_is_told_in_a_line(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    told = CliRunner().invoke(main, ["sql", text, "--cold", "-w", str(tmp_path)])
    assert told.exit_code == 1
    assert said in told.output
    assert "Traceback" not in told.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--mode", "protobuf"], "--registry"),
        (["--registry", "http://localhost:8081"], "--mode"),
        (["--topic-mode", "t=avro"], "--registry"),
        (["--topic-mode", "t=xml"], "is no mode"),
        (["--topic-mode", "other=raw"], "none of the topics"),
        (["--alias", "other=raw"], "none of the topics"),
        (["-X", "security.protocol=SSL"], "No such option"),
        (["--format", "delta", "--catalog", "type=rest"], "no catalog"),
        (["--format", "delta", "--partition-by", "day(timestamp)"], "no partition transforms"),
    ],
)
def test_options_that_do_not_go_together_are_refused_at_once(options: list[str], said: str) -> None:
    told = CliRunner().invoke(main, ["pipeline", "ingest", "t", "--once", *options])
    assert (told.exit_code, said in told.output) == (2, True)


@pytest.mark.parametrize(
    ("package", "options", "extra"),
    [
        ("grpc_tools", ["--mode", "protobuf", "--registry", "http://localhost:1"], "protobuf"),
        ("deltalake", ["--format", "delta"], "delta"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, options: list[str], extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"{package}.protoc", raising=False)
    told = CliRunner().invoke(main, ["pipeline", "ingest", "t", "--once", *options])
    assert (told.exit_code, f"pip install 'chronik[{extra}]'" in told.output) == (1, True)


def test_a_password_is_for_the_registry_that_is_named_with_it() -> None:
    secret = ["--registry-config", "bearer.auth.token=t"]
    told = CliRunner().invoke(main, ["sql", "SELECT 1", "--cold", *secret])
    assert (told.exit_code, "needs --registry" in told.output) == (2, True)


def test_a_proof_needs_an_end() -> None:
    told = CliRunner().invoke(main, ["pipeline", "ingest", "t", "--prove"])
    assert (told.exit_code, "--once" in told.output) == (2, True)


@pytest.mark.integration
def test_status_and_maintain(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 100))
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path), records_max=50), topic)
    log.send(topic, numbered(100, 105))
    options = ["-w", str(tmp_path)]
    shown = CliRunner().invoke(main, ["pipeline", "status", "-b", log.bootstrap, *options])
    table, partition, ingested, end, lag = shown.output.splitlines()[1].split()[:5]
    assert (table, partition, ingested, end, lag) == (
        topic.replace("-", "_"),
        "0",
        "100",
        "105",
        "5",
    )
    cared = CliRunner().invoke(main, ["pipeline", "maintain", *options])
    assert cared.output.splitlines()[1].split() == [table, "2", "0", "0"]


@pytest.mark.parametrize("command", [("maintain",), ("status", "--cold")])
def test_a_folder_without_tables_is_named_and_not_made(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    place = tmp_path / "elsewhere"
    done = CliRunner().invoke(main, ["pipeline", *command, "-w", str(place)])
    assert done.exit_code == 0
    assert f"No tables in '{place}'" in done.stderr
    assert not place.exists()
