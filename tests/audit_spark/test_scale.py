"""One change in a large ledger is found, and nothing else is reported."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench.audit_ledgers import CHANGES, EXPECTED, shape_of, write_ledgers

from chronik.audit.anomaly import Policy

pytestmark = [pytest.mark.integration, pytest.mark.spark]
SHORT_EVENTS = 200_000
POINTS_MAX = 5_000


def numbers_in(value: Any) -> int:
    """How many numbers a measure holds."""
    if isinstance(value, dict):
        return sum(map(numbers_in, value.values()))
    return sum(map(numbers_in, value)) if isinstance(value, list) else 1


def findings_in(folder: Path) -> Counter[tuple[str, str]]:
    import pyarrow.parquet as pq

    rows = pq.read_table(folder / "findings", columns=["topic", "name"]).to_pylist()
    return Counter((row["topic"], row["name"]) for row in rows)


@pytest.mark.parametrize("seed", [1])
def test_every_kind_of_change_is_found_in_its_topic(spark: Any, tmp_path: Path, seed: int) -> None:
    from chronik.audit_spark.job import Options, audit_ledgers

    ledgers, sent = tmp_path / "ledgers", 0
    for number, change in enumerate(CHANGES):
        events = SHORT_EVENTS // len(CHANGES)
        shape = shape_of(events, partitions=3, change=change, seed=seed + number, name=f"{change}-")
        sent += write_ledgers(ledgers, shape)
    assert sent >= SHORT_EVENTS
    options = Options(block_size=256, tables=tmp_path / "tables", plots=True)
    verdict = audit_ledgers(spark, sorted(ledgers.iterdir()), Policy(), options)
    expected = {
        (f"{change}-t", name): count
        for change, found in EXPECTED.items()
        for name, count in found.items()
    }
    assert findings_in(tmp_path / "tables") == expected
    assert {one.name: one.count for one in verdict.anomalies} == {
        name: count for (_, name), count in expected.items()
    }
    assert (tmp_path / "tables" / "blocks").is_dir(), "most rows were left out"
    assert numbers_in(verdict.measures) < POINTS_MAX
