"""The Spark session of the pipeline: this machine by default, any master by its URL."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from chronik.pipeline.source import register

JAVA_MIN = 17
LOOPBACK = "127.0.0.1"
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
) -> SparkSession:
    """The running session, or a new one, that knows the format "chronik"."""
    active = SparkSession.getActiveSession()
    if active is None:
        require_java()
        active = _start(master, app, quick, conf or {})
    register(active)
    return active


def _start(master: str, app: str, quick: bool, conf: Mapping[str, str]) -> SparkSession:
    # The workers must be the interpreter that has chronik, not the first `python3` of the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # The schema of the tables about the cluster: chronik.topics and the others.
        "spark.sql.globalTempDatabase": "chronik",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.sql.shuffle.partitions": "4",
        }
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        quiet = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        settings["spark.driver.extraJavaOptions"] = f"{quiet} {_SMALL_JVM if quick else ''}"
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in (settings | dict(conf)).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


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


def java_version() -> int | None:
    """The major version of the Java that Spark would use; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    return int(found.group(1)) if found else None
