"""A standalone Spark cluster on loopback: a master and two workers that do not know Chronik."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.pipeline.kit import Log, numbered

SECONDS_MAX = 200.0


def spark_class() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")


@contextmanager
def daemon(name: str, home: Path, *options: str) -> Iterator[Path]:
    """A process of Spark's own; its log."""
    log = home / f"{name}.log"
    unknown = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "SPARK_HOME"}}
    environment = unknown | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    kind = "master.Master" if name == "master" else "worker.Worker"
    command = [spark_class(), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
    command += ["--port", "0", "--webui-port", "0", *options]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=home, env=environment)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(60)


def told(log: Path, pattern: str) -> str:
    """What the log says, as soon as it does."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace"))


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        url = told(stack.enter_context(daemon("master", tmp_path)), r"master at (spark://\S+)")
        for name in ("one", "two"):
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / name), url)
            worker = stack.enter_context(daemon(name, tmp_path, *options))
            told(worker, r"(Successfully registered with master)")
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
    for worker in ("one", "two"):
        files = [one.name for one in (tmp_path / worker).rglob("*.zip")]
        assert "chronik-0-py3-none-any.zip" in files
        assert "chronik.zip" in files
