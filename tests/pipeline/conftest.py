"""One broker and one Spark session for the whole folder."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.kit import Ask, Log, Rows, rows_in
from tests.pipeline.schemas import Schemas
from tests.servers import SELDOM

import chronik

CONNECTOR = Path(__file__).parents[2] / ".peers" / "spark-kafka"
"""Spark's own Kafka connector, where bench/spark-kafka.sh has put it; tests fetch nothing."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: starts a JVM")


def java_is_missing() -> bool:
    from chronik.pipeline.session import JAVA_MIN, java_version

    return (java_version() or 0) < JAVA_MIN


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spark = [item for item in items if item.get_closest_marker("spark")]
    if spark and java_is_missing():
        for item in spark:
            item.add_marker(pytest.mark.skip(reason="Spark needs Java 17 or later"))


@pytest.fixture(scope="session")
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    """A broker: Chronik inside this process, or Apache Kafka with --server kafka."""
    if request.config.getoption("--server") == "kafka":
        yield Log(request.getfixturevalue("server").bootstrap)
        return
    with chronik.embedded(configs=SELDOM) as broker:
        yield Log(broker.bootstrap)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A small session; the JVM ends with it."""
    from chronik.pipeline.session import session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {"spark.sql.shuffle.partitions": "2"}
    if jars := sorted(map(str, CONNECTOR.glob("*.jar"))):
        conf["spark.jars"] = ",".join(jars)
    running = session("local[2]", conf=conf)
    yield running
    running.stop()


@pytest.fixture
def schemas() -> Iterator[Schemas]:
    running = Schemas()
    yield running
    running.stop()


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def ask(request: pytest.FixtureRequest, log: Log, tmp_path: Path) -> Ask:
    """Asks one engine about the warehouse in `tmp_path`."""
    from chronik.pipeline import sql, sql_duckdb

    if request.param == "duckdb":

        def by_duckdb(text: str, **options: Any) -> Rows:
            return rows_in(sql_duckdb.query(log.bootstrap, tmp_path, text, **options))

        return by_duckdb
    spark = request.getfixturevalue("spark")

    def by_spark(text: str, **options: Any) -> Rows:
        answer = sql.query(spark, log.bootstrap, tmp_path, text, **options)
        return [tuple(row) for row in answer.collect()]

    return by_spark
