"""The Spark session of the pipeline: this machine by default, any master by its URL."""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from chronik.pipeline.source import register

JAVA_MIN = 17
LOOPBACK = "127.0.0.1"
PY_FILES = "CHRONIK_PY_FILES"
"""Environment variable: wheels or zip files for the executors, with commas."""
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
"""For work of seconds: half the start time of the defaults. Long jobs want the full compiler."""

_LOGGING = Path(__file__).with_name("log4j2.properties")


class NoJavaError(RuntimeError):
    """Spark cannot start: there is no Java, or one that is too old."""


def session(
    master: str = "local[*]",
    *,
    app: str = "chronik pipeline",
    quick: bool = True,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
    knows_format: bool = True,
) -> SparkSession:
    """The running session, or a new one, that knows the format "chronik".

    log: a file for what the JVM would write to the terminal. knows_format: what only runs plain
    jobs does without it, and without the second that Spark's SQL takes to begin.
    """
    active = SparkSession.getActiveSession()
    if active is None:
        wanted = start_jvm(master, app=app, quick=quick, conf=conf, log=log)
        active = SparkSession.builder.config(conf=wanted).getOrCreate()
    if knows_format:
        register(active)
    return active


def start_jvm(
    master: str = "local[*]",
    *,
    app: str = "chronik pipeline",
    quick: bool = True,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkConf:
    """Starts Spark itself, and no session yet: a session belongs to the thread that makes it."""
    require_java()
    wanted = SparkConf().setMaster(master).setAppName(app)
    wanted.setAll(list((_settings(master, quick) | dict(conf or {})).items()))
    # The workers must be the interpreter that has chronik, not the first `python3` of the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    if log is not None and SparkContext._gateway is None:
        launch: Any = launch_gateway
        with log.open("ab") as file:
            gateway = launch(wanted, {"stderr": file})
        SparkContext._ensure_initialized(gateway=gateway, conf=wanted)
    context = SparkContext.getOrCreate(wanted)
    if not master.startswith("local"):
        for one in packages_to_ship():
            context.addPyFile(str(one))
    return wanted


def _on_this_machine(master: str) -> bool:
    return re.match(r"local|spark://(localhost|127\.)", master) is not None


def packages_to_ship() -> list[Path]:
    """What the executors of a cluster import: CHRONIK_PY_FILES, or this package itself.

    Spark takes zip files only; a wheel is one by another name. Dependencies (numpy, pyarrow, ...)
    must be installed where the executors run.
    """
    given = [Path(one) for one in os.environ.get(PY_FILES, "").split(",") if one]
    folder = Path(tempfile.mkdtemp(prefix="chronik-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if not given:
        source = Path(__file__).parents[1]
        name = str(folder / "chronik")
        return [Path(shutil.make_archive(name, "zip", source.parent, source.name))]
    return [
        Path(shutil.copy(one, folder / f"{one.stem}.zip")) if one.suffix == ".whl" else one
        for one in given
    ]


def _settings(master: str, quick: bool) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # The schema of the tables about the cluster: chronik.topics and the others.
        "spark.sql.globalTempDatabase": "chronik",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Between the JVM and its Python workers: cheaper than TCP through the loopback.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    if _on_this_machine(master):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    java = [f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"]
    if master.startswith("local"):
        settings["spark.sql.shuffle.partitions"] = "4"
        java += [_SMALL_JVM] if quick else []
    settings["spark.driver.extraJavaOptions"] = " ".join(java)
    return settings


def require_java() -> None:
    """Says what to install rather than let Spark fail with a trace."""
    version = java_version()
    if version is None:
        raise NoJavaError(
            f"the pipeline runs on Spark, which needs Java {JAVA_MIN} or later, and no 'java' was "
            f"found. Install one (Debian, Ubuntu: apt install openjdk-{JAVA_MIN}-jre-headless; "
            f"macOS: brew install openjdk@{JAVA_MIN}) or set JAVA_HOME"
        )
    if version < JAVA_MIN:
        raise NoJavaError(f"Spark needs Java {JAVA_MIN} or later; this one is Java {version}")


def java_command() -> str | None:
    """The Java that Spark would use."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def java_version() -> int | None:
    """The major version of the Java that Spark would use; None where there is none."""
    java = java_command()
    return None if java is None else _version_of(java)


@cache
def _version_of(java: str) -> int | None:
    """Asked once: it starts a JVM."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    return int(found.group(1)) if found else None
