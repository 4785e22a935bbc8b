"""The same tables by pyiceberg, duckdb and Iceberg's JVM library: equal counts and sums."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.kit import Log, numbered

from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.maintenance import compact
from chronik.pipeline.partitioning import parse
from chronik.pipeline.warehouse import Warehouse, data_files

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / ".peers" / "spark-iceberg"
JARS = sorted(RUNTIME.glob("*.jar"))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.skipif(not JARS, reason="no runtime: bench/spark-iceberg.sh fetches it"),
]
RAW = ["count(*)", 'sum("offset")', "sum(octet_length(key))", "sum(octet_length(value))"]
JSON = ["count(*)", "sum(_offset)", "sum(n)", "count(late)", "max(late)"]


def by_jvm(questions: list[tuple[Any, list[str]]]) -> list[Any]:
    """One JVM for all tables."""
    asked = [
        [table.metadata_location, *(one.replace('"', "`") for one in expressions)]
        for table, expressions in questions
    ]
    command = [sys.executable, str(Path(__file__).with_name("iceberg_reader.py")), str(JARS[0])]
    # The Spark that the runtime is for, and nothing of this process.
    environment = {**os.environ, "PYTHONPATH": str(RUNTIME / "python")}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    told = subprocess.run(
        command,
        env=environment,
        input="".join(json.dumps(one) + "\n" for one in asked),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2_000:]
    return [json.loads(line) for line in told.stdout.splitlines()]


def by_duckdb(source: Any, expressions: list[str]) -> list[Any]:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.register("rows", source)
    found = connection.execute(f"SELECT {', '.join(expressions)} FROM rows").fetchone()
    connection.close()
    return list(found)


def by_pyiceberg(table: Any, expressions: list[str]) -> list[Any]:
    """pyiceberg reads the rows; the sums are made of what it read."""
    return by_duckdb(table.scan().to_arrow(), expressions)


def of_files(table: Any, expressions: list[str]) -> list[Any]:
    """The same without Iceberg: the files by duckdb's own parquet reader."""
    duckdb = pytest.importorskip("duckdb")
    files = [one.removeprefix("file://") for one in data_files(table)]
    query = f"SELECT {', '.join(expressions)} FROM read_parquet(?, union_by_name=true)"
    return list(duckdb.connect().execute(query, [files]).fetchone())


def test_three_readers_find_the_same(log: Log, tmp_path: Path) -> None:
    questions = [
        (raw(log, tmp_path), RAW),
        (by_day(log, tmp_path), RAW),
        (events(log, tmp_path), JSON),
    ]
    theirs = by_jvm(questions)
    for (table, expressions), jvm in zip(questions, theirs, strict=True):
        assert by_pyiceberg(table, expressions) == jvm
        assert of_files(table, expressions) == jvm
    assert [one[0] for one in theirs] == [1_000, 500, 300]


def loaded(warehouse: Path, topic: str) -> Any:
    table = Warehouse(warehouse).of_topic(topic)
    assert table is not None
    return table


def raw(log: Log, warehouse: Path) -> Any:
    """Several commits, some of them joined by compaction."""
    topic = log.topic(2)
    log.send(topic, numbered(0, 600))
    job = Job(log.bootstrap, Warehouse(warehouse), records_max=200)
    ingest_topic(job, topic)
    compact(loaded(warehouse, topic))
    log.send(topic, numbered(600, 1_000))
    ingest_topic(job, topic)
    return loaded(warehouse, topic)


def by_day(log: Log, warehouse: Path) -> Any:
    topic = log.topic()
    log.send(topic, numbered(0, 500))
    by = parse("day(timestamp);bucket(4,key)")
    ingest_topic(Job(log.bootstrap, Warehouse(warehouse), partition_by=by), topic)
    return loaded(warehouse, topic)


def events(log: Log, warehouse: Path) -> Any:
    """A column that older files do not have."""
    topic = log.topic()
    job = Job(log.bootstrap, Warehouse(warehouse), "json")
    log.send(topic, [(None, b'{"n": %d}' % n) for n in range(200)])
    ingest_topic(job, topic)
    log.send(topic, [(None, b'{"n": %d, "late": "%03d"}' % (n, n)) for n in range(100)])
    ingest_topic(job, topic)
    return loaded(warehouse, topic)
