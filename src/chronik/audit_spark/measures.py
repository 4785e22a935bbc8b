"""What a verdict also measures, in the shape of `audit.measures`.

Counts are of all events. Latencies and the curves over time come from every n-th value (`sampled`
says n; 1 is all of them), because they alone would need every send next to its read.
"""

from collections import defaultdict
from itertools import accumulate
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit.anomaly import Policy
from chronik.audit.measures import PERCENTILES, POINTS_MAX
from chronik.audit_spark.history import KEY, History

Counts = dict[str, int]


def partition_counts(history: History) -> DataFrame:
    """One row per key: what was committed, read and missed among the rows at hand."""
    elsewhere = f.col("read") & (f.col("partition") < 0)
    sends = history.sends.where("committed").select(
        f.when(elsewhere, f.col("first.topic")).otherwise(f.col("topic")).alias("topic"),
        f.when(elsewhere, f.col("first.partition"))
        .otherwise(f.col("partition"))
        .alias("partition"),
        "read",
    )
    sent = (
        sends.where("partition >= 0")
        .groupBy(*KEY)
        .agg(f.count("*").alias("sent"), f.sum((~f.col("read")).cast("int")).alias("missed"))
    )
    read = (
        history.offsets.where("first_read IS NOT NULL")
        .groupBy(*KEY)
        .agg(
            f.count("*").alias("read"),
            f.min("offset").alias("offset_min"),
            f.max("offset").alias("offset_max"),
        )
    )
    clean = history.clean.select(
        *KEY,
        f.col("rows").alias("sent"),
        f.lit(0).alias("missed"),
        f.col("rows").alias("read"),
        "offset_min",
        "offset_max",
    )
    rows = sent.join(read, list(KEY), "full").fillna(0, ["sent", "missed", "read"])
    total = (
        rows.unionByName(clean)
        .groupBy(*KEY)
        .agg(
            *(f.sum(name).alias(name) for name in ("sent", "missed", "read")),
            f.min("offset_min").alias("offset_min"),
            f.max("offset_max").alias("offset_max"),
        )
    )
    return total.join(history.logs, list(KEY), "left")


def partitions(counted: DataFrame) -> dict[str, Counts]:
    return {
        f"{one['topic']}-{one['partition']}": _partition(one)
        for one in counted.orderBy(*KEY).collect()
    }


def _partition(one: Any) -> Counts:
    span = one["offset_max"] - one["offset_min"] + 1 if one["read"] else 0
    return {
        "sent": one["sent"],
        "read": one["read"],
        "missed": one["missed"],
        "offset_min": one["offset_min"] if one["read"] else -1,
        "offset_max": one["offset_max"] if one["read"] else -1,
        "gaps": span - one["read"],
        "log_start": one["start"] or 0,
        "log_end": -1 if one["end"] is None else one["end"],
    }


def imbalances(
    counted: dict[str, Counts], named: dict[str, int], policy: Policy
) -> list[tuple[str, str]]:
    """Topics in which a partition's share of what was sent deviates from an equal one."""
    topics: dict[str, list[int]] = defaultdict(list)
    for key, counts in counted.items():
        topics[key.rpartition("-")[0]].append(counts["sent"])
    found = []
    for topic, shares in topics.items():
        shares.extend([0] * (named.get(topic, 0) - len(shares)))
        expected = sum(shares) / len(shares)
        worst = max(abs(count - expected) for count in shares) / expected if expected else 0.0
        if expected >= policy.imbalance_records_min and worst > policy.imbalance_share:
            said = f"{topic}: a partition is {worst:.0%} off its equal share of {expected:.0f}"
            found.append((topic, said))
    return found


def percentiles(found: DataFrame, latency: Column) -> dict[str, float]:
    """Nearest-rank percentiles of milliseconds; empty without values."""
    ranked = [
        f.expr(f"percentile_disc({p / 100!r}) WITHIN GROUP (ORDER BY latency)").alias(f"p{p:g}")
        for p in PERCENTILES
    ]
    (one,) = found.select(latency.alias("latency")).agg(*ranked).collect()
    return {
        name: round(value / 1e6, 3) for name, value in one.asDict().items() if value is not None
    }


def sampled_sends(events: DataFrame) -> DataFrame:
    """One row per value that was sent, with the time of its first read: a single aggregation."""
    is_send, is_record = f.col("kind") == "send", f.col("kind") == "record"
    sender = f.when(is_send & (f.col("sender") == ""), f.col("process")).otherwise(f.col("sender"))
    known = is_record & (f.col("end_ns") >= 0)
    found = events.groupBy(sender.alias("sender"), "sequence").agg(
        f.max(f.when(is_send, f.col("begin_ns"))).alias("begin_ns"),
        f.max(f.when(is_send, f.col("end_ns"))).alias("end_ns"),
        f.max(f.when(is_send, (f.col("outcome") == "ok").cast("int"))).alias("acked"),
        f.min(f.when(known, f.col("end_ns"))).alias("read_ns"),
        f.min(f.when(is_record, f.struct("line", *KEY))).alias("first"),
    )
    outcome = f.when(f.col("acked") == 1, "ok").otherwise("")
    return found.where("acked IS NOT NULL").withColumn("outcome", outcome)


def deliveries(sends: DataFrame) -> DataFrame:
    """One row per value whose send and first read have known times."""
    return sends.where("read_ns IS NOT NULL AND begin_ns >= 0")


def over_time(sends: DataFrame, step: int) -> dict[str, list[float]]:
    """Sent, acked and read in total at regular moments; unseen is acked minus read."""
    acked = sends.where("outcome = 'ok'").select("begin_ns", "end_ns")
    read = deliveries(sends).select("read_ns")
    (low,) = acked.agg(f.min("begin_ns").alias("low"), f.max("end_ns").alias("high")).collect()
    if low["low"] is None or low["low"] < 0:
        return {}
    (last,) = read.agg(f.max("read_ns").alias("last")).collect()
    start, stop = low["low"], max(low["high"], last["last"] or 0)
    width = max(1, (stop - start) // POINTS_MAX)
    moments = [*range(start, stop, width), stop]
    series = {"sent": (acked, "begin_ns"), "acked": (acked, "end_ns"), "read": (read, "read_ns")}
    totals = {
        name: [step * n for n in _upto(frame, column, start, width, len(moments))]
        for name, (frame, column) in series.items()
    }
    unseen = [max(0, a - r) for a, r in zip(totals["acked"], totals["read"], strict=True)]
    seconds = [round((now - start) / 1e9, 6) for now in moments]
    return {"seconds": seconds, **totals, "unseen": unseen}


def _upto(frame: DataFrame, column: str, start: int, width: int, points: int) -> list[int]:
    """How many times are at or before each moment; the last moment is the end of all."""
    slot = f.ceil((f.col(column) - start) / f.lit(width))
    bounded = f.least(f.greatest(slot, f.lit(0)), f.lit(points - 1)).alias("slot")
    counted = {one["slot"]: one["count"] for one in frame.groupBy(bounded).count().collect()}
    return list(accumulate(counted.get(n, 0) for n in range(points)))


def lag_over_time(events: DataFrame) -> dict[str, dict[str, list[float]]]:
    """Per consumer, the records between its positions and the end offsets, over all partitions."""
    samples = events.where("kind = 'poll' AND offset >= 0 AND position >= 0")
    lag = f.greatest(f.col("offset") - f.col("position"), f.lit(0))
    of_partition = Window.partitionBy("process", "partition").orderBy("line")
    of_process = Window.partitionBy("process").orderBy("line")
    known = samples.withColumn("lag", lag)
    change = f.col("lag") - f.coalesce(f.lag("lag").over(of_partition), f.lit(0))
    summed = known.withColumn("change", change).withColumns(
        {
            "total": f.sum("change").over(of_process),
            "number": f.row_number().over(of_process) - 1,
            "count": f.count("*").over(Window.partitionBy("process")),
            "start": f.min("end_ns").over(Window.partitionBy()),
        }
    )
    thinned = summed.where(f.col("number") % f.ceil(f.col("count") / POINTS_MAX) == 0)
    found: dict[str, dict[str, list[float]]] = {}
    for one in thinned.orderBy("process", "line").collect():
        series = found.setdefault(one["process"], {"seconds": [], "lag": []})
        series["seconds"].append(round((one["end_ns"] - one["start"]) / 1e9, 3))
        series["lag"].append(one["total"])
    return found


def refusals(sends: DataFrame) -> Counts:
    """How many sends of whom ended how, other than ok."""
    said = f.trim(f.concat_ws(" ", "process", "outcome", "detail"))
    refused = sends.where("outcome != 'ok'").groupBy(said.alias("said")).count()
    return {one["said"]: one["count"] for one in refused.collect()}


def faults(events: DataFrame) -> Counts:
    found = events.where("kind = 'fault'").groupBy("detail").count()
    return {one["detail"]: one["count"] for one in found.collect()}
