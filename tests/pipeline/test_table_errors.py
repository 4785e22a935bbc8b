"""Two writers at once, and what the libraries behind the tables may say: told in a sentence."""

import multiprocessing
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.pipeline.kit import Log, numbered

from chronik.cli import main
from chronik.pipeline import catalogs
from chronik.pipeline.catalogs import CATALOG_FILE, WarehouseError
from chronik.pipeline.client import ClusterError
from chronik.pipeline.delta_table import DeltaWarehouse
from chronik.pipeline.ingest import Job, ingest_topic, open_table, spark_tasks
from chronik.pipeline.table_errors import LOCKED, explained
from chronik.pipeline.tables import Tables
from chronik.pipeline.warehouse import ColumnConflict, OffsetConflict, Warehouse, table_name

pytestmark = pytest.mark.integration


@pytest.fixture(params=["iceberg", "delta"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Tables]:
    """The warehouse, opened anew by each ingester."""
    if request.param == "iceberg":
        return lambda: Warehouse(tmp_path)
    pytest.importorskip("deltalake", reason="chronik[delta] is not installed")
    return lambda: DeltaWarehouse(tmp_path)


# -- two ingesters that add columns


def test_columns_that_two_add_at_once_are_both_there(log: Log, place: Callable[[], Tables]) -> None:
    topic = log.topic()
    first, second = (open_table(Job(log.bootstrap, place(), "json"), topic) for _ in range(2))
    first.add_columns({"a": pa.int64(), "same": pa.string()})
    second.add_columns({"b": pa.string(), "same": pa.string()})
    both = open_table(Job(log.bootstrap, place(), "json"), topic).schema()
    assert [(one.name, one.type) for one in both][4:] == [
        ("a", pa.int64()),
        ("same", pa.string()),
        ("b", pa.string()),
    ]


@pytest.mark.parametrize(("name", "kind"), [("a", pa.string()), ("A", pa.int64())])
def test_a_column_that_another_made_otherwise_is_refused(
    log: Log, place: Callable[[], Tables], name: str, kind: pa.DataType
) -> None:
    topic = log.topic()
    first, second = (open_table(Job(log.bootstrap, place(), "json"), topic) for _ in range(2))
    first.add_columns({"a": pa.int64()})
    with pytest.raises(ColumnConflict, match="run this one again"):
        second.add_columns({name: kind})
    assert open_table(Job(log.bootstrap, place(), "json"), topic).schema().names[4:] == ["a"]


def test_of_two_ingesters_with_new_columns_one_wins(log: Log, place: Callable[[], Tables]) -> None:
    topic = log.topic()
    log.send(topic, [(None, b'{"n": %d}' % n) for n in range(10)])
    slow = Job(log.bootstrap, place(), "json")

    def interrupted(work: Any, ranges: Any) -> Any:
        slow.tasks = map
        ingest_topic(Job(log.bootstrap, place(), "json"), topic)  # the other one is faster
        return [work(one) for one in ranges]

    slow.tasks = interrupted
    with pytest.raises(OffsetConflict, match="ends at offset 10"):
        ingest_topic(slow, topic)
    assert ingest_topic(Job(log.bootstrap, place(), "json"), topic).rows == 0
    table = place().existing(topic)
    assert table is not None
    assert table.state().next == {0: 10}


# -- catalogs


def open_at_once(folder: Path, barrier: Any, answers: Any) -> None:
    barrier.wait()
    try:
        Warehouse(folder)
        answers.put("")
    except Exception as error:  # noqa: BLE001 - the parent shows it
        answers.put(repr(error))


def test_a_catalog_that_several_make_at_once(tmp_path: Path) -> None:
    several = 4
    context = multiprocessing.get_context("fork")
    for number in range(3):
        barrier, answers = context.Barrier(several), context.Queue()
        arguments = (tmp_path / str(number), barrier, answers)
        running = [context.Process(target=open_at_once, args=arguments) for _ in range(several)]
        for one in running:
            one.start()
        assert [answers.get(timeout=30) for _ in running] == [""] * several
        for one in running:
            one.join()


def test_a_catalog_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / CATALOG_FILE).write_text("no database" * 1_000)
    for command in (["status", "--cold"], ["maintain"]):
        told = CliRunner().invoke(main, ["pipeline", *command, "-w", str(tmp_path)])
        assert (told.exit_code, "Traceback" in told.output) == (1, False)
        assert "file is not a database" in told.output


def test_a_catalog_that_nobody_serves(tmp_path: Path) -> None:
    given = {"type": "rest", "uri": "http://127.0.0.1:1"}
    with pytest.raises(WarehouseError, match=r"catalog at http://127.0.0.1:1 cannot be used"):
        Warehouse(tmp_path, given)


def test_a_catalog_that_another_process_holds(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "LOCK_SECONDS_MAX", 0.1)
    topic = log.topic()
    log.send(topic, numbered(0, 3))
    job = Job(log.bootstrap, Warehouse(tmp_path))
    open_table(job, topic)
    holder = sqlite3.connect(tmp_path / CATALOG_FILE)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Exception, match="database is locked") as caught:
        ingest_topic(job, topic)
    assert explained(caught.value) == LOCKED
    holder.close()
    assert ingest_topic(job, topic).rows == 3


# -- files and tasks


def test_a_data_file_that_is_gone_is_named(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 3))
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path)), topic)
    (gone,) = tmp_path.rglob("*.parquet")
    gone.unlink()
    query = f"SELECT count(key) FROM {table_name(topic)}"
    told = CliRunner().invoke(main, ["sql", query, "--cold", "-w", str(tmp_path)])
    assert (told.exit_code, "Traceback" in told.output) == (1, False)
    assert gone.name in told.output


def failing(_: Any) -> Any:
    raise ClusterError("topic 'gone' does not exist")


@pytest.mark.spark
def test_an_error_inside_a_task_is_told_without_the_traces_around_it(spark: Any) -> None:
    with pytest.raises(Exception, match="gone") as caught:
        list(spark_tasks(spark)(failing, [None]))  # type: ignore[list-item]
    assert explained(caught.value) == "topic 'gone' does not exist"


def test_what_libraries_say_comes_with_advice() -> None:
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    assert "run it again" in str(explained(CommitFailedException("branch main has changed")))
    assert "nothing is taken twice" in str(explained(CommitStateUnknownException("timeout")))
    deltalake = pytest.importorskip("deltalake.exceptions")
    assert "run it again" in str(explained(deltalake.CommitFailedError("version 3 exists")))


def test_what_is_no_librarys_error_is_left_alone() -> None:
    assert explained(AssertionError("a defect")) is None
    assert explained(OSError(28, "No space left on device", "x")) == "no space left on device 'x'"
