"""One Spark session for the whole folder; without Java its tests are skipped."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # Compiling takes longer than interpreting plans over a few hundred rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


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
def spark() -> Iterator[Any]:
    """A small session; the JVM ends with it."""
    from chronik.pipeline.session import session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    running = session("local[2]", conf=SMALL)
    yield running
    running.stop()
