"""The verdict and the tables are the same on one core, on all cores and on a Spark cluster."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.audit.ledgers import MUTATIONS, clean
from tests.audit_spark.kit import write_by_process
from tests.spark_cluster import WORKERS, standalone

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.soak]
PLAYER = Path(__file__).with_name("masters.py")


def write_ledgers(folder: Path) -> None:
    """A clean run, and one with two changes."""
    for name in ("clean", "damaged"):
        rows = clean(2_500, seed=5)
        for change in ("exchange", "drop") if name == "damaged" else ():
            MUTATIONS[change][0](rows, random.Random(5))
        (folder / name).mkdir()
        write_by_process(folder / name, rows)


def audited(folder: Path, masters: list[str]) -> list[dict[str, Any]]:
    """Per master and ledger what `chronik audit --json` says, by one process with one JVM."""
    command = [sys.executable, str(PLAYER), str(folder), *masters]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tables_of(folder: Path) -> dict[str, list[str]]:
    import pyarrow.parquet as pq

    return {
        one.name: sorted(map(repr, pq.read_table(one).to_pylist()))
        for one in sorted(folder.iterdir())
    }


@pytest.mark.timeout(900)
def test_a_cluster_gives_the_same_verdict_and_tables(tmp_path: Path) -> None:
    write_ledgers(tmp_path)
    with standalone(tmp_path) as url:
        masters = ["local[1]", "local[*]", url]
        found = audited(tmp_path, masters)
    assert [one["master"] for one in found] == [m for m in masters for _ in ("clean", "damaged")]
    for name in ("clean", "damaged"):
        first, *others = [one for one in found if one["ledger"] == name]
        for other in others:
            assert other["verdict"] == first["verdict"]
            assert tables_of(Path(other["tables"])) == tables_of(Path(first["tables"]))
    names = {one["ledger"]: _names(one) for one in found}
    assert names == {"clean": [], "damaged": ["inconsistent-offsets", "lost-write"]}
    for worker in WORKERS:
        assert list((tmp_path / worker).rglob("chronik.zip")), "both workers took part"


def _names(found: dict[str, Any]) -> list[str]:
    return [one["name"] for one in found["verdict"]["anomalies"]]
