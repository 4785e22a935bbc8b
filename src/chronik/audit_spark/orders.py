"""Anomalies of writing order: (int-)nonmonotonic-send, int-send-skip, realtime-order."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit.anomaly import Level, Policy
from chronik.audit_spark.between import one_each, weigh_between
from chronik.audit_spark.findings import finding
from chronik.audit_spark.history import KEY, PLACE, History

_BEFORE = ("line", "process", "sequence", "at", "transaction")


def order_anomalies(history: History, policy: Policy) -> list[DataFrame]:
    placed = placed_sends(history).localCheckpoint()
    pairs = neighbours(placed)
    return [_nonmonotonic(pairs, policy), _skips(history, pairs), realtime(placed)]


def placed_sends(history: History) -> DataFrame:
    """One row per send that is in the log: `at` as acked, else as first read."""
    elsewhere = f.col("read") & (f.col("partition") < 0)
    sends = history.sends.where("outcome != 'fail'")
    placed = sends.withColumns(
        {
            "at": f.when(f.col("offset") >= 0, f.col("offset")).otherwise(f.col("first.offset")),
            "topic": f.when(elsewhere, f.col("first.topic")).otherwise(f.col("topic")),
            "partition": f.when(elsewhere, f.col("first.partition")).otherwise(f.col("partition")),
        }
    )
    return placed.where("at >= 0")


def neighbours(placed: DataFrame) -> DataFrame:
    """One row per two consecutive sends of a producer to a key.

    Without idempotence a send of unknown end may land at any later time: it is left out.
    """
    judged = placed.where("idempotent OR outcome = 'ok'")
    order = Window.partitionBy(*PLACE).orderBy("sequence", "line")
    before = f.lag(f.struct(*_BEFORE)).over(order)
    pairs = judged.withColumn("before", before).where("before IS NOT NULL")
    same = (f.col("transaction") >= 0) & (f.col("transaction") == f.col("before.transaction"))
    return pairs.withColumn("inside", same)


def _said(tail: str = "") -> Column:
    return f.concat(
        f.concat_ws("-", "topic", f.col("partition").cast("string")), f.lit(": "),
        f.col("before.process"), f.lit("'s send "), f.col("before.sequence"),
        f.lit(" is at offset "), f.col("before.at"), f.lit(", "),
        f.col("process"), f.lit("'s later send "), f.col("sequence"), f.lit(" at "), f.col("at"),
        f.lit(tail),
    )  # fmt: skip


def _lines() -> list[Column]:
    return [f.col("before.line"), f.col("line")]


def _nonmonotonic(pairs: DataFrame, policy: Policy) -> DataFrame:
    """One row per later send of a producer with a lower offset."""
    wrong = pairs.where(f.col("at") <= f.col("before.at"))
    allowed = f.lit(policy.at_least_once) & ~f.col("idempotent")
    level = f.when(allowed, str(Level.ALLOWED)).otherwise(str(Level.FAIL))
    name = f.when(f.col("inside"), "int-nonmonotonic-send").otherwise("nonmonotonic-send")
    return finding(wrong, name, _said(), _lines(), level=level, offset=f.col("at"))


def _skips(history: History, pairs: DataFrame) -> DataFrame:
    """One row per two sends of a transaction with values of others between them."""
    apart = pairs.where(f.col("inside") & (f.col("at") > f.col("before.at") + 1))
    probes = apart.select(
        f.col("line").alias("id"),
        *KEY,
        f.col("before.at").alias("low"),
        f.col("at").alias("high"),
    )
    data = history.offsets.where("data").select(*KEY, "offset", one_each().alias("weight"))
    blocks = history.clean.select(
        *KEY, f.col("offset_min").alias("offset"), f.col("rows").alias("weight")
    )
    gap = weigh_between(probes, data.unionByName(blocks)).where("between > 0")
    skipped = apart.join(gap, f.col("line") == f.col("id"))
    said = _said(" with values of others between them")
    level = f.lit(str(Level.ALLOWED))
    return finding(skipped, "int-send-skip", said, _lines(), level=level, offset=f.col("at"))


def realtime(placed: DataFrame) -> DataFrame:
    """One row per send behind, in time, an ack of another producer with a higher offset.

    Begins before ends at one instant, so that equal times count as concurrent; times are compared
    only where one clock measured them.
    """
    columns = (*KEY, "clock", "at", "process", "sequence", "line")
    begins = placed.where("begin_ns >= 0").select(*columns, (f.col("begin_ns") * 2).alias("moment"))
    acked = placed.where("outcome = 'ok' AND end_ns >= 0")
    ends = acked.select(*columns, (f.col("end_ns") * 2 + 1).alias("moment"))
    moments = begins.unionByName(ends)
    is_end = f.col("moment") % 2 != 0
    ack = f.struct(
        "at",
        (-f.col("moment")).alias("earlier"),
        (-f.col("line")).alias("first"),
        "line",
        "process",
        "sequence",
    )
    order = Window.partitionBy(*KEY, "clock").orderBy("moment")
    highest = f.max(f.when(is_end, ack)).over(
        order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    begun = moments.withColumn("before", highest).where(~is_end & f.col("before").isNotNull())
    wrong = begun.where(
        (f.col("before.at") > f.col("at")) & (f.col("before.process") != f.col("process"))
    )
    said = _said(" though it began after the ack")
    return finding(wrong, "realtime-order", said, _lines(), offset=f.col("at"))
