"""One change among many events is found, and nothing else is reported: by the audit as it is run.

The clean run is written once; a mutation writes only the ledgers that it changes.
"""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from bench.audit_ledgers import CHANGES, EXPECTED, Shape, shape_of, write_changed, write_ledgers

from chronik.audit.anomaly import Policy

pytestmark = [pytest.mark.integration, pytest.mark.spark]
SHORT_EVENTS, LONG_EVENTS = 300_000, 1_000_000
MUTATIONS, PIECES = 1_000, 20
PARTITIONS = 6
REAL = [change for change in CHANGES if change != "none"]


def mutation(events: int, number: int) -> Shape:
    """Kinds go round; place and values are of the seed."""
    change, partition = REAL[number % len(REAL)], number // len(REAL) % PARTITIONS
    return shape_of(
        events, partitions=PARTITIONS, change=change, partition=partition, seed=1_000 + number
    )


def found_in(spark: Any, files: list[Path]) -> dict[str, int]:
    from chronik.audit_spark.job import audit_ledgers

    verdict = audit_ledgers(spark, files, Policy())
    assert verdict.ok == (not verdict.anomalies)
    return {one.name: one.count for one in verdict.anomalies}


def check(spark: Any, folder: Path, events: int, numbers: range) -> None:
    """Each is a line: which one, where, what was found, seconds."""
    clean = folder / "clean"
    written = write_ledgers(clean, shape_of(events, partitions=PARTITIONS))
    assert found_in(spark, sorted(clean.iterdir())) == {}
    for number in numbers:
        shape, changed = mutation(events, number), folder / "changed"
        files = write_changed(changed, clean, shape)
        began = time.monotonic()
        found = found_in(spark, files)
        seconds = time.monotonic() - began
        said = f"mutation {number} {shape.change} in partition {shape.partition} of {written}"
        print(f"{said} events: {found}, {seconds:.1f} s", flush=True)  # noqa: T201
        assert found == EXPECTED[shape.change], said
        shutil.rmtree(changed)


def test_each_kind_of_change_is_found_and_nothing_else(spark: Any, tmp_path: Path) -> None:
    check(spark, tmp_path, SHORT_EVENTS, range(len(REAL)))


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("piece", range(PIECES))
def test_a_thousand_changes_in_a_million_events(spark: Any, tmp_path: Path, piece: int) -> None:
    each = MUTATIONS // PIECES
    check(spark, tmp_path, LONG_EVENTS, range(piece * each, (piece + 1) * each))
