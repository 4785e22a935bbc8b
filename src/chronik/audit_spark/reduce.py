"""From all ledgers to the rows that must be judged one by one, and what stands for the others."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from chronik.audit.anomaly import Policy
from chronik.audit_spark.blocks import BLOCK_KEY, sent_blocks
from chronik.audit_spark.history import KEY, VALUE, Context, settings
from chronik.audit_spark.ledgers import events
from chronik.audit_spark.order import Array
from chronik.audit_spark.realtime import overtaken
from chronik.audit_spark.screen import spans, suspicious
from chronik.audit_spark.session import MANY_ROWS, kept_whole, plan_for
from chronik.audit_spark.sources import Unit
from chronik.audit_spark.survey import survey
from chronik.audit_spark.wanted import Wanted

VALUES_MAX = 100_000
"""More values than this out of place, and all rows are judged."""
ROWS_SHARE_MAX = 0.5
"""Where more than this would be judged row by row, all rows are."""


class Reduced(NamedTuple):
    """The rows, and what is known of the rest; no context where nothing was left out."""

    rows: DataFrame
    context: Context | None
    blocks: DataFrame | None
    sample: DataFrame | None = None
    """Events of every `step`-th sequence, where rows were left out."""
    step: int = 1


def everything(spark: SparkSession, units: Sequence[Unit]) -> Reduced:
    rows = events(spark, units).localCheckpoint()
    count = rows.count()
    plan_for(spark, count)
    return Reduced(kept_whole(rows) if count < MANY_ROWS else rows, None, None)


def reduced(
    spark: SparkSession,
    units: Sequence[Unit],
    policy: Policy,
    block_size: int,
    share_max: float = ROWS_SHARE_MAX,
) -> Reduced:
    """Screens the blocks of the logs and reads the rows of those that are not clean."""
    found, notes, sample, step = survey(spark, units, block_size)
    plan_for(spark, found.count())
    bad = suspicious(found, notes, block_size, policy).localCheckpoint()
    judged = _rows_of(found.join(bad, list(BLOCK_KEY)))
    if _share_names(found) or judged > share_max * _rows_of(found):
        return everything(spark, units)
    rows = notes if bad.isEmpty() else _read(spark, units, bad, block_size, {})
    more = _late_blocks(found, rows, block_size).join(bad, list(BLOCK_KEY), "left_anti")
    more = more.localCheckpoint()
    values = _strange_values(rows)
    if sum(map(len, values.values())) > VALUES_MAX:
        return everything(spark, units)
    if values or not more.isEmpty():
        bad = bad.unionByName(more)
        rows = _read(spark, units, bad, block_size, values)
    plan_for(spark, rows.count())
    return Reduced(rows, _context(found, bad, rows, block_size), found, sample, step)


def _rows_of(found: DataFrame) -> int:
    (one,) = found.agg(f.coalesce(f.sum("rows"), f.lit(0)).alias("rows")).collect()
    return int(one["rows"])


def _share_names(found: DataFrame) -> bool:
    """Two processes send under one name: their sequences say nothing about the values."""
    sends = found.where("kind = 'send'")
    names = sends.groupBy("sender_min").agg(f.countDistinct("process").alias("processes"))
    mixed = sends.where("sender_min != sender_max")
    return not names.where("processes > 1").isEmpty() or not mixed.isEmpty()


def _read(
    spark: SparkSession,
    units: Sequence[Unit],
    bad: DataFrame,
    block_size: int,
    values: dict[str, Array],
) -> DataFrame:
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for one in bad.collect():
        numbers[one["topic"], one["partition"]].append(one["block"])
    chosen = {key: np.array(sorted(found), np.int64) for key, found in numbers.items()}
    wanted = Wanted(everything=False, blocks=chosen, block_size=block_size, values=values)
    return kept_whole(events(spark, units, wanted))


def _late_blocks(found: DataFrame, rows: DataFrame, block_size: int) -> DataFrame:
    """Blocks whose acks a send of unknown end may have come too late for."""
    sender = f.when(f.col("sender") == "", f.col("process")).otherwise(f.col("sender"))
    unknown = rows.where("kind = 'send' AND offset < 0 AND outcome != 'fail' AND begin_ns >= 0")
    begun = unknown.select(sender.alias("sender"), "sequence", "process", "begin_ns")
    read = rows.where("kind = 'record'").select(*VALUE, *KEY, "offset")
    placed = read.join(begun, list(VALUE)).select(
        *KEY, f.floor(f.col("offset") / block_size).alias("block"), "process", "begin_ns"
    )
    late = placed.groupBy(*BLOCK_KEY, "process").agg(f.max("begin_ns").alias("begin_ns_max"))
    columns = ("kind", *BLOCK_KEY, "process", "begin_ns_max", "end_ns_min")
    none = f.lit(None).cast("bigint").alias("end_ns_min")
    both = found.select(*columns).unionByName(
        late.select(f.lit("send").alias("kind"), *BLOCK_KEY, "process", "begin_ns_max", none)
    )
    return overtaken(both, settings(rows)).distinct()


def _strange_values(rows: DataFrame) -> dict[str, Array]:
    """Values that were found where no ack says they are: their other places are asked for."""
    sender = f.when(f.col("sender") == "", f.col("process")).otherwise(f.col("sender"))
    acked = rows.where("kind = 'send' AND offset >= 0").select(
        sender.alias("sender"), "sequence", *KEY, "offset"
    )
    found = rows.where("kind IN ('record', 'replica')").select(*VALUE, *KEY, "offset")
    strange = found.join(acked, [*VALUE, *KEY, "offset"], "left_anti").select(*VALUE).distinct()
    values: dict[str, list[int]] = defaultdict(list)
    for one in strange.limit(VALUES_MAX + 1).collect():
        values[one["sender"]].append(one["sequence"])
    return {sender: np.array(sorted(found), np.int64) for sender, found in values.items()}


def _context(found: DataFrame, bad: DataFrame, rows: DataFrame, block_size: int) -> Context:
    """What stands for clean blocks, less the rows of them that were asked for by value."""
    block = f.floor(f.col("offset") / block_size).alias("block")
    acked = rows.where("kind = 'send' AND offset >= 0 AND outcome = 'ok'").select(*KEY, block)
    asked = acked.groupBy(*BLOCK_KEY).agg(f.count("*").alias("asked"))
    clean = sent_blocks(found).join(bad, list(BLOCK_KEY), "left_anti")
    left = clean.join(asked, list(BLOCK_KEY), "left").withColumn(
        "rows", f.col("rows") - f.coalesce("asked", f.lit(0))
    )
    kept = left.select(*BLOCK_KEY, "offset_min", "offset_max", "rows", "end_ns_min")
    replicas = found.where("kind = 'replica'").select("process").distinct()
    return Context(spans(found).localCheckpoint(), kept.localCheckpoint(), replicas)
