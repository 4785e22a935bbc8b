"""A whole audit on Spark: the verdict, its measures and its tables."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.audit.ledgers import MUTATIONS, clean
from tests.audit.test_where import AGAIN, APPENDED, COMMITTED, DROPPED, SEND, SERVED
from tests.audit_spark.kit import comparable, write, write_by_process, write_traces

from chronik.audit.anomaly import Policy
from chronik.audit.ledger import read_rows
from chronik.audit.rows import Row
from chronik.audit.verdict import judge
from chronik.audit.verify import add_losses
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
    add_losses(expected, read_rows(files))
    assert verdict.measures == expected.measures
    findings = spark.read.parquet(str(tmp_path / "tables" / "findings"))
    assert [one["name"] for one in findings.collect()] == ["lost-write"]


def test_few_rows_are_judged_in_memory_with_the_same_verdict(spark: Any, tmp_path: Path) -> None:
    from chronik.audit_spark.job import Options, audit_ledgers

    files = write_by_process(tmp_path, with_one_change("drop"))
    expected = judge(read_rows(files))
    add_losses(expected, read_rows(files))
    for options in (Options(), Options(block_size=8)):
        assert audit_ledgers(spark, files, Policy(), options) == expected


def test_intents_without_outcome_are_sends_of_unknown_end(spark: Any, tmp_path: Path) -> None:
    from chronik.audit.ledger import LedgerWriter
    from chronik.audit.send_log import SendLog
    from chronik.audit_spark.job import Options, audit_ledgers

    with LedgerWriter(tmp_path / "a.ledger", "r", "p0") as ledger:
        log = SendLog(ledger, "t", 200)
        log.begin(0, [1] * 100)
        log.acked(list(range(40)), [0] * 40, list(range(40)))
        log.flush()
    for options in (Options(), Options(block_size=8)):
        verdict = audit_ledgers(spark, [tmp_path / "a.ledger"], Policy(), options)
        assert verdict.measures["sends"] == {"ok": 40, "info": 160}


def test_an_outcome_may_be_in_the_file_after_its_intent(spark: Any, tmp_path: Path) -> None:
    from chronik.audit.ledger import LedgerWriter
    from chronik.audit.send_log import SendLog
    from chronik.audit_spark.job import Options, audit_ledgers

    files = [tmp_path / f"run-p0.{n:05}.ledger" for n in (1, 2)]
    with LedgerWriter(files[0], "r", "p0") as ledger:
        log = SendLog(ledger, "t", 200)
        log.begin(0, [1] * 100)
        log.acked(list(range(99)), [0] * 99, list(range(99)))
        log.rotate(files[1])
        log.acked([99], [0], [99])
        log.close()
    assert judge(read_rows(files)).measures["sends"] == {"ok": 100}
    for options in (Options(), Options(block_size=8)):
        verdict = audit_ledgers(spark, files, Policy(), options)
        assert verdict.measures["sends"] == {"ok": 100}


@pytest.mark.parametrize("events", [[APPENDED], [APPENDED, AGAIN], [APPENDED, COMMITTED, SERVED]])
def test_traces_say_where_a_value_was_lost(
    spark: Any, tmp_path: Path, events: list[TraceEvent]
) -> None:
    from chronik.audit_spark.history import history
    from chronik.audit_spark.ledgers import events as ledger_events
    from chronik.audit_spark.order import units_of
    from chronik.audit_spark.traces import trace_events
    from chronik.audit_spark.traces import where_lost as where_lost_on_spark

    rows = history(ledger_events(spark, units_of([write(tmp_path / "a.ledger", [SEND])])))
    for name, more in (("complete", []), ("dropped", [DROPPED])):
        folder = write_traces(tmp_path / name, events + more)
        found = where_lost_on_spark(rows, trace_events(spark, [folder]))
        assert found == where_lost([SEND], events + more)


DOCS = Path(__file__).parents[2] / "docs" / "reference" / "audit.md"
LISTED = ("findings", "partitions", "lost", "stretches", "sends")


def documented() -> dict[str, set[str]]:
    """Per table, the columns that the reference names."""
    cells = [line.split("|") for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    rows = [[cell.strip() for cell in row[1:-1]] for row in cells if len(row) == 5]
    return {row[0].strip("`"): set(row[2].split(", ")) for row in rows}


def test_tables_are_those_of_the_reference_and_other_engines_read_them(
    spark: Any, tmp_path: Path
) -> None:
    import duckdb
    import pyarrow.parquet as pq

    from chronik.audit_spark.job import TABLES, Options, audit_ledgers

    (tmp_path / "ledgers").mkdir()
    files = write_by_process(tmp_path / "ledgers", with_one_change("drop"))
    target = tmp_path / "tables"
    (target / "blocks").mkdir(parents=True)  # of an audit before
    audit_ledgers(spark, files, Policy(), Options(exact_joins=True, tables=target))
    assert {one.name for one in target.iterdir()} == set(TABLES) - {"blocks"}
    assert set(documented()) == set(TABLES)
    for name in LISTED:
        assert set(pq.read_table(target / name).column_names) == documented()[name], name
    assert set(Row._fields) < set(pq.read_table(target / "events").column_names)
    sql = f"SELECT name, topic, count(*) FROM '{target}/findings/*.parquet' GROUP BY ALL"
    assert duckdb.execute(sql).fetchall() == [("lost-write", "t", 1)]
    joined = f"FROM '{target}/lost/*.parquet' l JOIN '{target}/sends/*.parquet' s"
    matched = duckdb.execute(f"SELECT s.read {joined} USING (sender, sequence)").fetchall()
    assert matched == [(False,)]
