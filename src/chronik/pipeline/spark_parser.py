"""Spark's own SQL parser without a Spark: a bare JVM is there in about a second, a session in ten.

Only asked about a text that DuckDB could not parse: it may be Spark's dialect, or a mistake.
"""

import importlib
import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext

from chronik.pipeline.session import java_command

gateways: Any = importlib.import_module("py4j.java_gateway")
py4j: Any = importlib.import_module("py4j.protocol")
_JARS = Path(pyspark.__file__).parent / "jars" / "*"
_QUICK = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    # A fifth of the time, and the jars are Spark's own.
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
END_SECONDS_MAX = 10.0


def syntax_error(text: str) -> str | None:
    """What the parser has against the text; None where it has nothing, or could not be asked."""
    if SparkContext._gateway is not None:
        return None  # Spark is there, and says it itself
    try:
        with _jvm() as jvm:
            return _parsed(jvm, text)
    except (py4j.Py4JError, OSError, ValueError):
        return None


def _parsed(jvm: Any, text: str) -> str | None:
    try:
        jvm.org.apache.spark.sql.execution.SparkSqlParser().parsePlan(text)
    except py4j.Py4JJavaError as error:
        said = str(error.java_exception.toString())
        return _told(said) if "ParseException" in said.partition(":")[0] else None
    return None


def _told(said: str) -> str:
    """The sentence between the error's class and the text of the query."""
    lines = [line for line in said.partition(":")[2].splitlines() if line.strip()]
    sentence = lines[0].partition("] ")[2] or lines[0]
    return sentence.partition(" SQLSTATE")[0]


@contextmanager
def _jvm() -> Iterator[Any]:
    command = [java_command() or "java", *_QUICK, "-cp", str(_JARS), "py4j.GatewayServer"]
    process = subprocess.Popen(
        [*command, "--die-on-broken-pipe", "--enable-auth", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port, token = (process.stdout.readline().decode().strip() for _ in range(2))
        parameters = gateways.GatewayParameters(port=int(port), auth_token=token)
        yield gateways.JavaGateway(gateway_parameters=parameters).jvm
    finally:
        process.stdin.close()  # that ends it
        process.stdout.close()
        process.wait(END_SECONDS_MAX)
