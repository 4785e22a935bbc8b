"""The rows of blocks that are not clean are a history of their own, with the same findings."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.audit.ledgers import MUTATIONS, clean
from tests.audit_spark.histories import (
    All,
    Found,
    case,
    check,
    disturbed,
    few,
    grouped,
    many,
    units,
    worlds,
)
from tests.audit_spark.kit import write_by_process

from chronik.audit.anomaly import Policy, Verdict
from chronik.audit.ledger import read_rows
from chronik.audit.rows import Row
from chronik.audit.verdict import find_anomalies, judge
from chronik.audit.verify import add_losses

pytest.importorskip("pyspark")
TIMES = ("ack_latency_ms", "delivery_latency_ms", "over_time")
"""Of a sample; the value of a damaged record is not looked up for them."""
SWEEP = pytest.mark.sweep


def reduced_of(files: list[Path], policy: Policy, block_size: int) -> Any:
    from chronik.audit_spark.chosen import Reader
    from chronik.audit_spark.order import units_of
    from chronik.audit_spark.reduce import reduced

    return reduced(Reader(None, units_of(files)), policy, block_size, share_max=1.0)


def found_in_memory(path: Path, policy: Policy, block_size: int) -> Found:
    from chronik.audit_spark.context import clean_of
    from chronik.audit_spark.few import history_of

    chosen = reduced_of([path], policy, block_size)
    assert chosen.left_out is not None, "something must be left out"
    findings = All()
    clean = clean_of(chosen.left_out, chosen.rows.in_memory)
    find_anomalies(history_of(chosen, clean), findings, policy)
    return grouped(findings.said)


def check_histories(folder: Path, histories: list[list[Row]], block_size: int) -> None:
    one = case(folder, units(retried=False) + histories, Policy())
    check(one, found_in_memory(one.path, one.policy, block_size))


def test_a_history_of_each_kind_has_the_findings_of_the_oracle(tmp_path: Path) -> None:
    check_histories(tmp_path, few(), 4)


@pytest.mark.sweep
@pytest.mark.parametrize("block_size", [2, 4, 32])
def test_every_history_has_the_findings_of_the_oracle(tmp_path: Path, block_size: int) -> None:
    check_histories(tmp_path, many(), block_size)


def verdict_of(files: list[Path], block_size: int) -> Verdict:
    from chronik.audit_spark.few import judged_in_memory

    return judged_in_memory(reduced_of(files, Policy(), block_size), Policy(), plots=False)


def changed(seed: int) -> list[Row]:
    """Of all kinds."""
    rng = random.Random(seed)
    if seed % 3 == 0:
        return disturbed(worlds(1, first=seed)[0], seed)
    rows = clean(300, seed=seed, partitions=1 + seed % 4, producers=1 + seed % 3)
    if seed % 3 == 1:
        MUTATIONS[rng.choice(sorted(MUTATIONS))][0](rows, rng)
        return rows
    return disturbed(rows, seed)


@pytest.mark.parametrize(
    "seeds",
    [range(6)]
    + [pytest.param(range(max(first, 6), first + 40), marks=SWEEP) for first in range(0, 160, 40)],
)
def test_whole_verdicts_are_those_of_the_oracle(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        (tmp_path / str(seed)).mkdir()
        files = write_by_process(tmp_path / str(seed), changed(seed))
        rows = read_rows(files)
        expected = judge(rows)
        add_losses(expected, rows)
        for block_size in (2, 16):
            found = verdict_of(files, block_size)
            assert counts(found) == counts(expected), seed
            for name, value in expected.measures.items():
                if name not in TIMES:
                    assert found.measures[name] == value, (seed, block_size, name)


def counts(verdict: Verdict) -> list[Any]:
    return [(one.name, one.level, one.count) for one in verdict.anomalies]
