"""A whole audit on Spark: the verdict, its measures and its tables, on any master."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.audit.ledgers import MUTATIONS, clean
from tests.audit.test_where import AGAIN, APPENDED, COMMITTED, DROPPED, SEND, SERVED
from tests.audit_spark.kit import comparable, write, write_by_process

from chronik.audit.anomaly import Policy
from chronik.audit.ledger import read_rows
from chronik.audit.rows import Row
from chronik.audit.verdict import judge
from chronik.audit.where import where_lost
from chronik.trace.events import TraceEvent

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def with_one_change(name: str, sends: int = 700) -> list[Row]:
    rows = clean(sends, seed=5)
    MUTATIONS[name][0](rows, random.Random(5))
    return rows


@pytest.mark.parametrize("exact_joins", [False, True])
def test_verdict_and_measures_are_those_of_the_oracle(
    spark: Any, tmp_path: Path, *, exact_joins: bool
) -> None:
    from chronik.audit_spark.job import Options, audit_ledgers

    files = write_by_process(tmp_path, with_one_change("drop"))
    expected = judge(read_rows(files))
    options = Options(exact_joins=exact_joins, block_size=8, tables=tmp_path / "tables")
    verdict = audit_ledgers(spark, files, Policy(), options)
    assert comparable(verdict) == comparable(expected)
    (found,) = [one for one in verdict.anomalies if one.name == "lost-write"]
    (same,) = [one for one in expected.anomalies if one.name == "lost-write"]
    assert [one.statement for one in found.examples] == [one.statement for one in same.examples]
    assert found.examples[0].rows[0] == same.examples[0].rows[0]
    assert verdict.measures.pop("sampled") == 1
    assert verdict.measures == expected.measures
    findings = spark.read.parquet(str(tmp_path / "tables" / "findings"))
    assert [one["name"] for one in findings.collect()] == ["lost-write"]


def test_intents_without_outcome_are_sends_of_unknown_end(spark: Any, tmp_path: Path) -> None:
    from chronik.audit.ledger import LedgerWriter, SendLog
    from chronik.audit_spark.job import Options, audit_ledgers

    with LedgerWriter(tmp_path / "a.ledger", "r", "p0") as ledger:
        log = SendLog(ledger, "t", 200)
        log.begin(0, [1] * 100)
        log.acked(list(range(40)), [0] * 40, list(range(40)))
        log.flush()
    for exact in (False, True):
        options = Options(exact_joins=exact, block_size=8)
        verdict = audit_ledgers(spark, [tmp_path / "a.ledger"], Policy(), options)
        assert verdict.measures["sends"] == {"ok": 40, "info": 160}


@pytest.mark.parametrize("events", [[APPENDED], [APPENDED, AGAIN], [APPENDED, COMMITTED, SERVED]])
def test_traces_say_where_a_value_was_lost(
    spark: Any, tmp_path: Path, events: list[TraceEvent]
) -> None:
    from chronik.audit_spark.history import history
    from chronik.audit_spark.ledgers import events as ledger_events
    from chronik.audit_spark.order import units_of
    from chronik.audit_spark.traces import SCHEMA
    from chronik.audit_spark.traces import where_lost as where_lost_on_spark

    rows = history(ledger_events(spark, units_of([write(tmp_path / "a.ledger", [SEND])])))
    for more in ([], [DROPPED]):
        table = spark.createDataFrame([tuple(one) for one in events + more], SCHEMA)
        assert where_lost_on_spark(rows, table) == where_lost([SEND], events + more)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master and two workers on loopback, as the pyspark package has them."""
    folder = tmp_path_factory.mktemp("cluster")
    running: list[subprocess.Popen[bytes]] = []
    try:
        master = _daemon(running, folder / "master", "master.Master", "--port", "0")
        url = "spark://" + _line(folder / "master", "Starting Spark master at spark://")
        for number in range(2):
            name = folder / f"worker{number}"
            _daemon(running, name, "worker.Worker", "--cores", "1", "--memory", "1g", url)
        assert master.poll() is None
        yield url
    finally:
        for process in running:
            process.terminate()
            process.wait(30)


def _daemon(
    running: list[subprocess.Popen[bytes]], log: Path, name: str, *arguments: str
) -> subprocess.Popen[bytes]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": f"{log}.work",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
            stdout=output,
            stderr=output,
            env=environment,
        )
    running.append(process)
    return process


def _line(log: Path, start: str) -> str:
    import time

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if start in line:
                return line.partition(start)[2].strip()
        time.sleep(0.2)
    raise TimeoutError(log.read_text())


def verdict_on(master: str, folder: Path, tables: Path) -> dict[str, Any]:
    """As a person does it: by the command, in a process of its own."""
    command = [sys.executable, "-m", "chronik", "audit", str(folder), "--engine", "spark"]
    command += ["--master", master, "--tables", str(tables), "--json"]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(900)
def test_a_cluster_gives_the_same_verdict_and_tables(tmp_path: Path, cluster: str) -> None:
    import pyarrow.parquet as pq

    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    write_by_process(ledgers, with_one_change("exchange", 3_000))
    verdicts, tables = [], []
    for n, master in enumerate(("local[1]", "local[*]", cluster)):
        target = tmp_path / str(n)
        verdicts.append(verdict_on(master, ledgers, target))
        found = {}
        for folder in sorted(target.iterdir()):
            rows = pq.read_table(folder).to_pylist()
            found[folder.name] = sorted(map(repr, rows))
        tables.append(found)
    assert verdicts[0] == verdicts[1] == verdicts[2]
    assert [one["name"] for one in verdicts[0]["anomalies"]] == ["inconsistent-offsets"]
    assert tables[0] == tables[1] == tables[2]
    assert set(tables[0]) == {"findings", "partitions", "stretches", "sends", "events", "blocks"}
