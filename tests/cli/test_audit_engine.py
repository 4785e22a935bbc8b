"""`chronik audit` chooses where it runs by the size of the ledgers and by what is installed."""

import socket
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from chronik.audit.anomaly import Policy
from chronik.audit.ledger import LedgerWriter
from chronik.audit.rows import Kind
from chronik.cli._audit_engine import (
    AUTO,
    AUTO_EVENTS,
    MEMORY,
    SPARK,
    check_master,
    chosen_engine,
    events_about,
    named_folders,
    spark_verdict,
)
from chronik.cli.audit import audit


def ledger(folder: Path, size: int) -> Path:
    """A file of this size; nobody reads it."""
    path = folder / "a.ledger"
    with path.open("wb") as file:
        file.truncate(size)
    return path


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def test_small_ledgers_are_judged_in_memory(tmp_path: Path) -> None:
    path = ledger(tmp_path, 1_000)
    assert chosen_engine(AUTO, [path]) == chosen_engine(AUTO, [tmp_path]) == MEMORY
    assert chosen_engine(SPARK, [path]) == SPARK


@pytest.mark.usefixtures("no_java")
def test_without_java_large_ledgers_are_judged_in_memory_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ledger(tmp_path, 100 * AUTO_EVENTS)
    assert events_about([path]) > AUTO_EVENTS
    assert chosen_engine(AUTO, [path]) == MEMORY
    assert "needs Java" in capsys.readouterr().err


@pytest.mark.usefixtures("no_java")
def test_without_java_spark_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="needs Java"):
        spark_verdict([tmp_path], Policy(), "local[1]", exact_joins=False, tables=None, traces=[])


def said(*arguments: str) -> str:
    """What wrong usage is answered with."""
    done = CliRunner().invoke(audit, list(arguments))
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    return " ".join(done.output.split())


def test_tables_go_into_a_folder(tmp_path: Path) -> None:
    path = ledger(tmp_path, 0)
    assert "is a file" in said(str(path), "--tables", str(path))


def test_nothing_but_tables_of_an_audit_is_overwritten(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    with LedgerWriter(tmp_path / "a.ledger", "r", "p0") as writer:
        writer.note(Kind.CLIENT, "clock=x")
    (tmp_path / "events").mkdir()
    answer = said(str(tmp_path), "--engine", "spark", "--tables", str(tmp_path))
    assert "no table of an audit" in answer


def test_tables_need_spark(tmp_path: Path) -> None:
    path = ledger(tmp_path, 0)
    tables = str(tmp_path / "tables")
    assert "--engine spark" in said(str(path), "--engine", "memory", "--tables", tables)


def test_what_is_no_ledger_is_said_before_spark_starts(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    path = ledger(tmp_path, 100)
    assert "is no ledger" in said(str(path), "--engine", "spark")
    (tmp_path / "empty").mkdir()
    assert "directory of ledgers" in said(str(tmp_path / "empty"), "--engine", "spark")


def test_a_master_that_does_not_answer_is_said_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(click.ClickException, match=r"no Spark master answers.*7077"):
        check_master(f"spark://127.0.0.1:{port}")
    check_master("local[*]")
    with socket.create_server(("127.0.0.1", 0)) as open_port:
        check_master(f"spark://127.0.0.1:{port},127.0.0.1:{open_port.getsockname()[1]}")


def test_nodes_are_named_after_their_folders(tmp_path: Path) -> None:
    one, two, three = tmp_path / "n1" / "data", tmp_path / "n2" / "data", tmp_path / "n3"
    names = named_folders([one, two, three])
    assert names == {str(one): one, str(two): two, "n3": three}
