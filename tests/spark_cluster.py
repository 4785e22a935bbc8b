"""A standalone Spark cluster on loopback, from the pyspark package: a master and two workers.

Its processes do not know Chronik: what executors import has to be shipped to them.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

SECONDS_MAX = 200.0
WORKERS = ("one", "two")


@contextmanager
def standalone(home: Path) -> Iterator[str]:
    """Its address; each worker's files are in the folder of its name."""
    with ExitStack() as stack:
        url = told(stack.enter_context(daemon("master", home)), r"master at (spark://\S+)")
        logs = []
        for name in WORKERS:
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(home / name), url)
            logs.append(stack.enter_context(daemon(name, home, *options)))
        for log in logs:
            told(log, r"(Successfully registered with master)")
        yield url


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


def spark_class() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-class")


def told(log: Path, pattern: str) -> str:
    """What the log says, as soon as it does."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace"))
