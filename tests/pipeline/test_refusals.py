"""What cannot succeed is refused before Spark starts, and the refusal says what to do."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.pipeline.kit import Log, numbered

from chronik.cli import main
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.warehouse import Warehouse, table_name

pytestmark = pytest.mark.integration


def told(*words: str) -> Result:
    found = CliRunner().invoke(main, list(words))
    assert "Starting Spark" not in found.output
    assert "Traceback" not in found.output
    return found


def refused(*words: str) -> str:
    found = told(*words)
    assert found.exit_code in {1, 2}, found.output
    return found.output


@pytest.fixture
def taken_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.fixture
def ingest(log: Log, tmp_path: Path) -> list[str]:
    return ["pipeline", "ingest", "--once", "-b", log.bootstrap, "-w", str(tmp_path / "tables")]


@pytest.fixture
def sql(log: Log, tmp_path: Path) -> list[str]:
    return ["sql", "-b", log.bootstrap, "-w", str(tmp_path / "tables")]


# -- ingest


def test_a_topic_that_does_not_exist(log: Log, ingest: list[str], tmp_path: Path) -> None:
    log.topic(name="purchases")
    assert "'purchases'?" in refused(*ingest, "purchase")
    assert "chronik topic create zzz" in refused(*ingest, "zzz")
    assert not (tmp_path / "tables").exists()


def test_a_listener_that_is_no_broker(taken_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.cli._pipeline_checks.ANSWER_SECONDS_MAX", 0.2)
    address = f"127.0.0.1:{taken_port}"
    assert "no broker answers there" in refused("pipeline", "ingest", "t", "-b", address)
    assert "no broker answers there" in refused("sql", "SELECT 1", "-b", address)


@pytest.mark.parametrize(
    ("master", "said"),
    [("locl", "is no Spark master"), ("spark://127.0.0.1:1", "no Spark master is reachable")],
)
def test_a_master_that_is_none(ingest: list[str], sql: list[str], master: str, said: str) -> None:
    assert said in refused(*ingest, "t", "--master", master)
    assert said in refused(*sql, "SELECT 1", "--master", master)


def test_a_table_of_another_mode(log: Log, ingest: list[str], tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 3))
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path / "tables")), topic)
    assert "an alias gives the topic another table" in refused(*ingest, topic, "--mode", "json")
    by_day = refused(*ingest, topic, "--partition-by", "day(timestamp)")
    assert "an alias gives the topic another table" in by_day


def test_a_log_that_begins_after_the_table(log: Log, ingest: list[str], tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 3))
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path / "tables")), topic)
    log.send(topic, numbered(3, 9))
    log.delete_before(topic, 0, 6)
    assert "deleted before they were ingested" in refused(*ingest, topic)


def test_a_registry_that_does_not_answer(ingest: list[str]) -> None:
    words = [*ingest, "t", "--mode", "avro", "--registry", "http://127.0.0.1:1"]
    assert "no schema registry answers at http://127.0.0.1:1" in refused(*words)


def test_a_port_that_is_taken(log: Log, ingest: list[str], taken_port: int) -> None:
    assert "0 takes a free one" in refused(*ingest, log.topic(), "--metrics-port", str(taken_port))


def test_a_warehouse_that_is_a_file(log: Log, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    words = ["pipeline", "ingest", log.topic(), "--once", "-b", log.bootstrap, "-w"]
    for place in (file, file / "below"):
        assert "cannot be used" in refused(*words, str(place))


def test_where_nothing_is_new_no_spark_starts(log: Log, ingest: list[str], tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 3))
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path / "tables")), topic)
    found = told(*ingest, topic)
    assert (found.exit_code, "0 rows in 0 commits" in found.output) == (0, True)


# -- sql


@pytest.fixture
def orders(log: Log, tmp_path: Path) -> str:
    topic = log.topic()
    log.send(topic, [(b"k", b'{"country": "de", "amount": 1}')])
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path / "tables"), "json"), topic)
    return table_name(topic)


ENGINES = ["duckdb", "spark", "auto"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_that_does_not_exist(sql: list[str], orders: str, engine: str) -> None:
    said = refused(*sql, f"SELECT * FROM {orders}x", "--engine", engine)
    assert f"no table or topic '{orders}x'. Did you mean" in said
    assert f"'{orders}'" in said
    for spelled in (orders.replace("_", "."), orders.replace("_", "-")):
        said = refused(*sql, f"SELECT * FROM {spelled}", "--engine", engine)
        assert f"the table of '{spelled}' is called {orders}" in said


@pytest.mark.parametrize("engine", ENGINES)
def test_a_column_that_does_not_exist(sql: list[str], orders: str, engine: str) -> None:
    said = refused(*sql, f"SELECT sum(t.amont) FROM {orders} t", "--engine", engine)
    assert "no column 'amont'. Did you mean 'amount'?" in said
    said = refused(*sql, f"SELECT zzz FROM {orders}", "--engine", engine)
    assert "There are '_partition', '_offset', '_timestamp', '_key'" in said


def test_a_name_is_no_variable_of_the_program(sql: list[str]) -> None:
    for name in ("system", "wanted", "view"):
        assert f"no table or topic '{name}'" in refused(*sql, f"SELECT * FROM {name}")


def test_a_query_without_words(sql: list[str]) -> None:
    assert "the query is empty" in refused(*sql, " -- nothing")


@pytest.mark.spark
def test_a_text_that_is_no_sql(sql: list[str]) -> None:
    # In a process of its own: the tests' session is there already, and would be asked itself.
    command = [sys.executable, "-m", "chronik", *sql, "SELEC 1"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == "Error: Syntax error at or near 'SELEC'.\n"


@pytest.mark.spark
def test_sparks_own_syntax_is_no_mistake() -> None:
    text = "SELECT `a` FROM t LATERAL VIEW explode(array(1)) x"
    code = f"from chronik.pipeline.spark_parser import syntax_error; print(syntax_error({text!r}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "None\n"
