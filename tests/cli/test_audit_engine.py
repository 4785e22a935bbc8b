"""`chronik audit` chooses where it runs by the size of the ledgers and by what is installed."""

from pathlib import Path

import click
import pytest

from chronik.audit.anomaly import Policy
from chronik.cli._audit_engine import (
    AUTO,
    AUTO_EVENTS,
    MEMORY,
    SPARK,
    chosen_engine,
    events_about,
    spark_verdict,
)


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
