"""The audit of ledgers on Spark: the only file here that reads and writes.

verdict = audit_ledgers(session("local[*]"), files, Policy())
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from chronik.audit.anomaly import Anomaly, Example, Level, Policy, Verdict
from chronik.audit.loss import LOST_NAMES
from chronik.audit.replicas import Damage
from chronik.audit_spark import history as tables_of
from chronik.audit_spark import measures
from chronik.audit_spark.blocks import block_size_for
from chronik.audit_spark.chosen import FEW_ROWS_MAX, LEAST_BYTES, Reader
from chronik.audit_spark.context import clean_of, context_of
from chronik.audit_spark.few import judged_in_memory
from chronik.audit_spark.findings import anomalies
from chronik.audit_spark.happenings import happenings, topics_of
from chronik.audit_spark.history import KEY, VALUE, History
from chronik.audit_spark.location import located, losses, near_of
from chronik.audit_spark.loss import lost_values
from chronik.audit_spark.order import units_of
from chronik.audit_spark.plots import own_traces, plot_data
from chronik.audit_spark.reduce import Reduced, reduced
from chronik.audit_spark.replicas import damage_of, segments_of, stored_records
from chronik.audit_spark.rules import judge_history
from chronik.audit_spark.sources import bytes_of, frame_of
from chronik.audit_spark.stalls import stall_spans
from chronik.audit_spark.traces import trace_events, where_lost

TABLES = ("findings", "partitions", "lost", "stretches", "sends", "events", "blocks")
"""What is written for further SQL; no `blocks` where every row was judged by itself."""
SMALL_BYTES = 1 << 18
"""Ledgers of less, some 40,000 events, are judged row by row: screening them takes longer."""


def _ignore(_: list[Damage]) -> None:
    """The default for a caller to whom damaged files are no news."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the audit is run and what else is asked for; none of it changes what is found."""

    exact_joins: bool = False
    """Judge every row by itself, without screening blocks first."""
    block_size: int | None = None
    """Offsets of a block; None: as many as the size of the ledgers asks for."""
    few_rows_max: int = FEW_ROWS_MAX
    """Up to so many rows are judged in memory; without tables, traces and replicas."""
    tables: Path | None = None
    """Where the tables go, as Parquet, for further SQL."""
    traces: Sequence[Path] = field(default_factory=tuple)
    """Directories of broker traces: where values were lost."""
    replicas: Mapping[str, Path] = field(default_factory=dict)
    """Data directories of nodes by their names: where values were lost, by the byte truth."""
    on_damage: Callable[[list[Damage]], None] = _ignore
    """Told of the batches in the replicas' files whose CRC is wrong."""
    plots: bool = False
    """Measure what a report draws."""


_DEFAULT = Options()


class Job(NamedTuple):
    """What all parts of one audit by Spark need."""

    spark: SparkSession
    options: Options
    chosen: Reduced
    history: History
    blocks: DataFrame | None
    """Of all ledgers, where rows were left out."""


def audit_ledgers(
    spark: SparkSession, files: Sequence[Path], policy: Policy, options: Options = _DEFAULT
) -> Verdict:
    """The verdict on ledger files, equal to `audit.verdict.judge` on their rows."""
    units = units_of(files)
    for_tables = options.exact_joins or options.tables or options.traces or options.replicas
    reader = Reader(spark, units, 0 if for_tables else options.few_rows_max)
    if options.exact_joins or (options.block_size is None and bytes_of(units) < SMALL_BYTES):
        chosen = Reduced(reader.everything())
    else:
        about = bytes_of(units) // LEAST_BYTES
        chosen = reduced(reader, policy, options.block_size or block_size_for(about))
    if chosen.rows.few is not None:
        return judged_in_memory(chosen, policy, plots=options.plots)
    return _judged_by_spark(_job(spark, options, chosen), policy)


def _job(spark: SparkSession, options: Options, chosen: Reduced) -> Job:
    rows, left_out = chosen.rows.frame(), chosen.left_out
    context = context_of(spark, left_out, rows) if left_out else None
    blocks = frame_of(spark, left_out.blocks.table) if left_out else None
    return Job(spark, options, chosen, tables_of.history(rows, context), blocks)


def _judged_by_spark(job: Job, policy: Policy) -> Verdict:
    history = job.history
    findings = judge_history(history, policy).localCheckpoint()
    counted = measures.partition_counts(history).localCheckpoint()
    partitions = measures.partitions(counted)
    found = anomalies(findings, history.events)
    found += _imbalance(history, partitions, policy)
    found.sort(key=lambda one: (list(Level).index(one.level), one.name))
    verdict = Verdict(not any(one.level == Level.FAIL for one in found), found, {})
    verdict.measures.update(_measure(job, findings) | {"partitions": partitions})
    lost = _locate(job, verdict)
    if job.options.tables and lost is not None:
        told = {"findings": findings.drop("lines"), "partitions": counted, "lost": lost}
        _write(job, job.options.tables, told)
    return verdict


def _locate(job: Job, verdict: Verdict) -> DataFrame | None:
    """Adds where and when values were lost; one row per lost value, if anybody asks for them."""
    missing = any(verdict.count(name) for name in LOST_NAMES)
    if not (missing or job.options.replicas or job.options.tables):
        return None
    lost = lost_values(job.history).localCheckpoint()
    stored = _stored(job, lost) if job.options.replicas else None
    places = located(lost, job.history, stored)
    if missing:
        places = places.localCheckpoint()
        around = happenings(job.history, job.blocks)
        verdict.measures["losses"] = losses(places, job.history, around)
    return places.select("name", *VALUE, *KEY, "offset", "begin_ns", "end_ns", "where", "holders")


def _stored(job: Job, lost: DataFrame) -> DataFrame:
    """What the replicas' files hold near the lost values."""
    segments = segments_of(job.options.replicas, topics_of(job.history))
    stored = stored_records(job.spark, segments, near_of(lost)).localCheckpoint()
    job.options.on_damage(damage_of(stored))
    return stored


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


def _measure(job: Job, findings: DataFrame) -> dict[str, Any]:
    chosen, history = job.chosen, job.history
    step, sample = chosen.step, chosen.sample
    sends = history.sends
    if sample is not None:
        sends = measures.sampled_sends(frame_of(job.spark, sample)).localCheckpoint()
    acked = sends.where("outcome = 'ok' AND begin_ns >= 0")
    delivered = measures.deliveries(sends)
    ack_ns, delivery_ns = f.col("end_ns") - f.col("begin_ns"), f.col("read_ns") - f.col("begin_ns")
    measured = _counts(job) | {
        "ack_latency_ms": measures.percentiles(acked, ack_ns),
        "delivery_latency_ms": measures.percentiles(delivered, delivery_ns),
        "refusals": measures.refusals(history.sends),
        "over_time": measures.over_time(sends, step),
        "lag_over_time": measures.lag_over_time(history.events),
        "faults": measures.faults(history.events),
    }
    return measured | _traced(job, findings, sends, step) | ({"sampled": step} if step > 1 else {})


def _traced(job: Job, findings: DataFrame, sends: DataFrame, step: int) -> dict[str, Any]:
    """What traces tell of losses, and the plots."""
    found: dict[str, Any] = {}
    folders = job.options.traces
    events = trace_events(job.spark, folders) if folders else None
    if events is not None:
        found["where_lost"] = where_lost(job.history, events)
    if job.options.plots:
        around = happenings(job.history, job.blocks)
        topics = topics_of(job.history)
        own = None if events is None else own_traces(events, topics, len(folders))
        stalls = stall_spans(findings, job.history.events)
        found["plots"] = plot_data(sends, step, stalls, around, own)
    return found


def _counts(job: Job) -> dict[str, Any]:
    """Of the rows at hand, and of the clean blocks that were left out."""
    history = job.history
    outcomes = history.sends.groupBy("outcome").count().collect()
    sends = {one["outcome"]: one["count"] for one in outcomes}
    read = history.reads.agg(f.count("*").alias("rows"), f.countDistinct(*VALUE).alias("values"))
    (one,) = read.collect()
    values, records = _left_out(job)
    if values:
        sends["ok"] = sends.get("ok", 0) + values
    return {
        "sends": sends,
        "records": one["rows"] + records,
        "values_read": one["values"] + values,
    }


def _left_out(job: Job) -> tuple[int, int]:
    """Values and records of clean blocks, without those that were asked for by value."""
    if job.chosen.left_out is None:
        return 0, 0
    clean = job.history.clean
    (one,) = clean.agg(f.coalesce(f.sum("rows"), f.lit(0)).alias("values")).collect()
    bounds = clean.select(*KEY, "offset_min", "offset_max")
    read = job.history.records.where("kind = 'record'").join(f.broadcast(bounds), list(KEY))
    asked = read.where("offset BETWEEN offset_min AND offset_max").count()
    left = clean_of(job.chosen.left_out, ())
    return one["values"], sum(key.records for key in left.values()) - asked


def _write(job: Job, target: Path, tables: dict[str, DataFrame]) -> None:
    """The tables of the audit; each is a folder of Parquet files."""
    history = job.history
    tables |= {
        "stretches": history.stretches,
        "sends": history.sends.drop("first"),
        "events": history.events,
    }
    if job.blocks is not None:
        tables["blocks"] = job.blocks
    assert set(tables) <= set(TABLES)
    for name in TABLES:
        if name in tables:
            tables[name].write.mode("overwrite").parquet(str(target / name))
        else:  # of an audit before
            shutil.rmtree(target / name, ignore_errors=True)
