"""The audit of ledgers on Spark: the only file here that reads and writes.

verdict = audit_ledgers(session("local[*]"), files, Policy())
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from chronik.audit.anomaly import Anomaly, Example, Level, Policy, Verdict
from chronik.audit_spark import history as tables_of
from chronik.audit_spark import measures
from chronik.audit_spark.blocks import BLOCK, BLOCK_KEY
from chronik.audit_spark.findings import anomalies
from chronik.audit_spark.history import KEY, VALUE, History
from chronik.audit_spark.ledgers import events
from chronik.audit_spark.order import units_of
from chronik.audit_spark.reduce import Reduced, everything, reduced
from chronik.audit_spark.rules import judge_history
from chronik.audit_spark.session import kept_whole, plan_for
from chronik.audit_spark.sources import Unit
from chronik.audit_spark.traces import trace_events, where_lost
from chronik.audit_spark.wanted import Wanted

SAMPLE_VALUES = 50_000
"""About so many values give the latencies and curves of a large ledger."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the audit is run; none of it changes the verdict."""

    exact_joins: bool = False
    """Judge every row by itself, without screening blocks first."""
    block_size: int = BLOCK
    tables: Path | None = None
    """Where the tables go, as Parquet, for further SQL."""
    traces: Sequence[Path] = field(default_factory=tuple)
    """Directories of broker traces: where values were lost."""


_DEFAULT = Options()


def audit_ledgers(
    spark: SparkSession, files: Sequence[Path], policy: Policy, options: Options = _DEFAULT
) -> Verdict:
    """The verdict on ledger files, equal to `audit.verdict.judge` on their rows."""
    units = units_of(files)
    if options.exact_joins:
        chosen = everything(spark, units)
    else:
        chosen = reduced(spark, units, policy, options.block_size)
    history = tables_of.history(chosen.rows, chosen.context)
    findings = judge_history(history, policy).localCheckpoint()
    counted = measures.partition_counts(history).localCheckpoint()
    partitions = measures.partitions(counted)
    found = anomalies(findings, history.events)
    found += _imbalance(history, partitions, policy)
    measured = _measure(spark, units, chosen, history)
    measured |= {"partitions": partitions}
    if options.traces:
        lost = where_lost(history, trace_events(spark, options.traces))
        measured["where_lost"] = lost
    if options.tables:
        _write(options.tables, findings, counted, history, chosen)
    found.sort(key=lambda one: (list(Level).index(one.level), one.name))
    return Verdict(not any(one.level == Level.FAIL for one in found), found, measured)


def _imbalance(
    history: History, partitions: dict[str, measures.Counts], policy: Policy
) -> list[Anomaly]:
    named = {
        one["topic"]: int(one["named_partitions"] or 0)
        for one in history.topics.select("topic", "named_partitions").collect()
    }
    found = measures.imbalances(partitions, named, policy)
    examples = [Example(said) for _, said in found]
    return [Anomaly("imbalance", Level.WARN, len(found), examples[:5])] if found else []


def _measure(
    spark: SparkSession, units: Sequence[Unit], chosen: Reduced, history: History
) -> dict[str, Any]:
    step = 1 if chosen.context is None else max(1, chosen.events // 2 // SAMPLE_VALUES)
    sends = history.sends if chosen.context is None else _sample(spark, units, step)
    acked = sends.where("outcome = 'ok' AND begin_ns >= 0")
    delivered = measures.deliveries(sends)
    ack_ns, delivery_ns = f.col("end_ns") - f.col("begin_ns"), f.col("read_ns") - f.col("begin_ns")
    return _counts(chosen, history) | {
        "ack_latency_ms": measures.percentiles(acked, ack_ns),
        "delivery_latency_ms": measures.percentiles(delivered, delivery_ns),
        "refusals": measures.refusals(history.sends),
        "over_time": measures.over_time(sends, step),
        "lag_over_time": measures.lag_over_time(history.events),
        "faults": measures.faults(history.events),
        "sampled": step,
    }


def _counts(chosen: Reduced, history: History) -> dict[str, Any]:
    """Of the rows at hand, and of the clean blocks that were left out."""
    outcomes = history.sends.groupBy("outcome").count().collect()
    sends = {one["outcome"]: one["count"] for one in outcomes}
    read = history.reads.agg(f.count("*").alias("rows"), f.countDistinct(*VALUE).alias("values"))
    (one,) = read.collect()
    records, values = one["rows"], one["values"]
    left_out = _left_out(chosen, history)
    if left_out["values"]:
        sends["ok"] = sends.get("ok", 0) + left_out["values"]
    return {
        "sends": sends,
        "records": records + left_out["records"],
        "values_read": values + left_out["values"],
    }


def _left_out(chosen: Reduced, history: History) -> dict[str, int]:
    if chosen.context is None or chosen.blocks is None:
        return {"values": 0, "records": 0}
    clean = chosen.context.clean
    (one,) = clean.agg(f.coalesce(f.sum("rows"), f.lit(0)).alias("values")).collect()
    given = chosen.blocks.where("kind = 'record'").join(clean, list(BLOCK_KEY), "left_semi")
    (all_of,) = given.agg(f.coalesce(f.sum("rows"), f.lit(0)).alias("records")).collect()
    bounds = clean.select(*KEY, "offset_min", "offset_max")
    read = history.records.where("kind = 'record'").join(f.broadcast(bounds), list(KEY))
    asked = read.where("offset BETWEEN offset_min AND offset_max").count()
    return {"values": one["values"], "records": all_of["records"] - asked}


def _sample(spark: SparkSession, units: Sequence[Unit], step: int) -> DataFrame:
    """One row per sampled value that was sent."""
    wanted = Wanted(everything=False, notes=False, sample_step=step)
    sampled = kept_whole(events(spark, units, wanted))
    plan_for(spark, sampled.count())
    return measures.sampled_sends(sampled).localCheckpoint()


def _write(
    target: Path, findings: DataFrame, counted: DataFrame, history: History, chosen: Reduced
) -> None:
    """The tables of the audit; each is a folder of Parquet files."""
    tables = {
        "findings": findings.drop("lines"),
        "partitions": counted,
        "stretches": history.stretches,
        "sends": history.sends.drop("first"),
        "events": history.events,
    }
    if chosen.blocks is not None:
        tables["blocks"] = chosen.blocks
    for name, frame in tables.items():
        frame.write.mode("overwrite").parquet(str(target / name))
