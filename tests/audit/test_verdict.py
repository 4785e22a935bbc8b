"""The verdict on clean ledgers, and on ledgers in which one thing is wrong."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.audit.ledgers import MUTATIONS, clean

from chronik.audit.anomaly import Level, Policy
from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.verdict import judge


def reported(rows: list[Row]) -> dict[str, int]:
    return {found.name: found.count for found in judge(rows).anomalies if found.name != "imbalance"}


@settings(max_examples=30)
@given(count=st.integers(0, 300), seed=st.integers(0, 10_000))
def test_a_clean_ledger_raises_no_alarm(count: int, seed: int) -> None:
    assert reported(clean(count, seed=seed)) == {}


@pytest.mark.parametrize("name", MUTATIONS)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_one_change_is_found_and_nothing_else_is_reported(name: str, seed: int) -> None:
    mutate, expected = MUTATIONS[name]
    rows = clean(400, seed=seed)
    # A ledger in which no send failed has none to be resurrected.
    assume(name != "resurrect" or any(row.outcome == Outcome.FAIL for row in rows))
    mutate(rows, random.Random(seed))
    assert set(reported(rows)) == expected


@pytest.mark.sweep
@pytest.mark.parametrize("name", MUTATIONS)
def test_one_change_in_five_thousand_is_found(name: str) -> None:
    mutate, expected = MUTATIONS[name]
    rows = clean(5_000, seed=7)
    mutate(rows, random.Random(7))
    counts = reported(rows)
    assert set(counts) == expected
    assert sum(counts.values()) == (2 if name == "exchange" else 1)


SEEDS = range(6)
"""Of each mutation; the long run has 91, which makes 1,001 in all."""
SOAK_SEEDS = range(91)


def check_mutations(name: str, seeds: range, sends: int) -> None:
    mutate, expected = MUTATIONS[name]
    for seed in seeds:
        rows = clean(sends, seed=seed, partitions=1 + seed % 4, producers=1 + seed % 3)
        mutate(rows, random.Random(seed))
        counts = reported(rows)
        assert set(counts) == expected, f"seed {seed}: {counts}"
        assert sum(counts.values()) == (2 if name == "exchange" else 1), f"seed {seed}: {counts}"


@pytest.mark.parametrize("name", MUTATIONS)
def test_seeded_mutations_are_found_and_nothing_else(name: str) -> None:
    check_mutations(name, SEEDS, 400)


@pytest.mark.soak
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_thousand_seeded_mutations_are_found_and_nothing_else(name: str) -> None:
    check_mutations(name, SOAK_SEEDS, 3_000)


def test_order_between_processes_does_not_matter() -> None:
    rows = clean(200, seed=3)
    by_process = sorted(rows, key=lambda row: row.process)
    assert judge(rows).to_dict() == judge(by_process).to_dict()


def test_a_failure_shows_the_rows_that_prove_it() -> None:
    rows = clean(200, seed=1)
    MUTATIONS["drop"][0](rows, random.Random(1))
    (found,) = judge(rows).anomalies
    kinds = [row.kind for row in found.examples[0].rows]
    assert kinds == [Kind.SEND, Kind.RECORD, Kind.LOG]


def test_measures_count_what_was_sent_and_read() -> None:
    rows = clean(500, seed=5)
    measures = judge(rows).measures
    sends = [row for row in rows if row.kind == Kind.SEND]
    assert sum(measures["sends"].values()) == len(sends) == 500
    assert measures["records"] == sum(row.kind == Kind.RECORD for row in rows)
    assert measures["ack_latency_ms"] == dict.fromkeys(
        ("p50", "p90", "p95", "p99", "p99.9", "p100"), 0.001
    )
    assert measures["over_time"]["read"][-1] == measures["values_read"]


def test_a_stall_fails_where_the_policy_says_so() -> None:
    place = Row(Kind.POLL, "c0", topic="t", partition=0, position=5, offset=9)
    rows = [place._replace(end_ns=second * 10**9) for second in (1, 4, 9)]
    assert judge(rows).ok
    assert not judge(rows, Policy(stall_level=Level.FAIL)).ok


def test_an_ack_without_offset_that_is_never_read_is_unseen() -> None:
    send = Row(Kind.SEND, "p0", topic="t", sequence=1, outcome=Outcome.OK)
    end = Row(Kind.LOG, "final", topic="t", partition=0, position=0, offset=0)
    assert reported([send, end]) == {"unseen": 1}
    assert reported([send]) == {}


def test_an_empty_ledger_is_ok() -> None:
    assert judge([]).ok
