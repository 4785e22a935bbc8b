"""The pipeline on a standalone Spark cluster whose workers do not know Chronik."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipeline.kit import Log, numbered
from tests.spark_cluster import WORKERS, standalone


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with standalone(tmp_path) as url:
        yield url


def chronik(*arguments: str) -> str:
    command = [sys.executable, "-m", "chronik", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wheel(folder: Path) -> Path:
    """The package as a wheel holds it."""
    source = Path(__file__).parents[2] / "src"
    made = shutil.make_archive(str(folder / "chronik-0-py3-none-any"), "zip", source, "chronik")
    return Path(shutil.move(made, made.removesuffix(".zip") + ".whl"))


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.integration
def test_ingest_and_sql_on_a_master_and_two_workers(log: Log, master: str, tmp_path: Path) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 20_000))
    place = ["-b", log.bootstrap, "-w", str(tmp_path / "warehouse"), "--master", master]
    shipped = ["--py-files", str(wheel(tmp_path))]
    chronik("pipeline", "ingest", topic, "--once", *place, *shipped)
    log.send(topic, numbered(20_000, 20_005))
    text = f"SELECT count(*) AS n, count(DISTINCT key) AS keys FROM {topic.replace('-', '_')}"
    answer = chronik("sql", text, "--json", *place)  # ships this package itself
    assert answer.strip() == '{"n": 20005, "keys": 20005}'
    for worker in WORKERS:
        files = [one.name for one in (tmp_path / worker).rglob("*.zip")]
        assert "chronik-0-py3-none-any.zip" in files
        assert "chronik.zip" in files
