"""Stalls: readable data and no progress, or acked data that never becomes readable."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit.anomaly import Policy
from chronik.audit_spark.findings import finding, key_name
from chronik.audit_spark.history import KEY, PLACE, History


def stalls(history: History, policy: Policy) -> DataFrame:
    """One row per stay of a consumer at one position that was too long, with its pattern."""
    stays = stays_of(history.events)
    hanging = stays.where(f.col("readable_last") - f.col("readable_first") >= policy.stall_ns)
    moved = _others_moved(history.events, hanging)
    named = hanging.join(moved, "first_line", "left").withColumn(
        "pattern",
        f.when(f.col("moved"), "one partition stalled").otherwise("fetch hanging"),
    )
    rest = stays.join(hanging.select("first_line"), "first_line", "left_anti")
    frozen = _frozen(history, rest, policy).withColumn("pattern", f.lit("watermark not advancing"))
    columns = ("process", *KEY, "position", "first_line", "last_line", "begin", "stop", "pattern")
    found = named.select(*columns).unionByName(frozen.select(*columns))
    seconds = (f.col("stop") - f.col("begin")) / 1e9
    said = f.concat(
        key_name(), f.lit(": "), f.col("process"), f.lit(" at "), f.col("position"),
        f.lit(" for "), f.format_string("%.1f", seconds), f.lit(" s: "), f.col("pattern"),
    )  # fmt: skip
    lines = [f.col("first_line"), f.col("last_line")]
    level = f.lit(str(policy.stall_level))
    return finding(found, "stall", said, lines, level=level, offset=f.col("position"))


def stall_spans(findings: DataFrame, events: DataFrame) -> DataFrame:
    """One row per stall that was found: the times of its first and last sample, what is said."""
    found = findings.where("name = 'stall'").select("statement", f.explode("lines").alias("line"))
    samples = events.join(f.broadcast(found), "line").groupBy("statement")
    return samples.agg(f.min("end_ns").alias("begin_ns"), f.max("end_ns").alias("end_ns"))


def stays_of(events: DataFrame) -> DataFrame:
    """One row per stay of a consumer at one position of a key: consecutive polls."""
    order = Window.partitionBy(*PLACE).orderBy("line")
    polls = events.where("kind = 'poll' AND partition >= 0")
    changed = f.coalesce((f.col("position") != f.lag("position").over(order)).cast("int"), f.lit(1))
    numbered = polls.withColumn("changed", changed).withColumn("stay", f.sum("changed").over(order))
    readable, at_end = f.col("offset") > f.col("position"), f.col("offset") == f.col("position")
    return numbered.groupBy(*PLACE, "stay").agg(
        f.first("position").alias("position"),
        f.min("line").alias("first_line"),
        f.max("line").alias("last_line"),
        f.min_by("end_ns", "line").alias("begin"),
        f.max_by("end_ns", "line").alias("stop"),
        _at(f.min_by, readable).alias("readable_first"),
        _at(f.max_by, readable).alias("readable_last"),
        _at(f.min_by, at_end).alias("at_end_first"),
        _at(f.max_by, at_end).alias("at_end_last"),
    )


def _at(pick: object, chosen: Column) -> Column:
    """The time of the first or last poll of these."""
    assert callable(pick)
    found: Column = pick(f.when(chosen, f.col("end_ns")), f.when(chosen, f.col("line")))
    return found


def _frozen(history: History, stays: DataFrame, policy: Policy) -> DataFrame:
    """Stays at the end offset while acked data behind it waited."""
    long = stays.where(f.col("at_end_last") - f.col("at_end_first") >= policy.stall_ns)
    acked = history.sends.where("outcome = 'ok' AND offset >= 0 AND transaction < 0").select(
        *KEY, "offset", "end_ns"
    )
    blocks = history.clean.select(
        *KEY, f.col("offset_min").alias("offset"), f.col("end_ns_min").alias("end_ns")
    )
    behind = acked.unionByName(blocks).alias("ack")
    same = "stay.topic = ack.topic AND stay.partition = ack.partition"
    waiting = behind.join(
        f.broadcast(long).alias("stay"), f.expr(f"{same} AND ack.offset >= stay.position")
    )
    since = waiting.groupBy("stay.first_line").agg(f.min("ack.end_ns").alias("waited"))
    known = long.join(since, "first_line")
    start = f.greatest("waited", "at_end_first")
    return known.where(f.col("at_end_last") - start >= policy.stall_ns)


def _others_moved(events: DataFrame, hanging: DataFrame) -> DataFrame:
    """One row per stay during or after which its consumer went on at another key."""
    polls = events.where("kind = 'poll' AND partition >= 0").alias("poll")
    other = (
        "poll.process = stay.process AND poll.end_ns >= stay.begin AND "
        "(poll.topic != stay.topic OR poll.partition != stay.partition)"
    )
    later = polls.join(f.broadcast(hanging).alias("stay"), f.expr(other))
    each = later.groupBy("stay.first_line", "poll.topic", "poll.partition").agg(
        f.min_by("poll.position", "poll.line").alias("from"),
        f.max_by("poll.position", "poll.line").alias("to"),
    )
    moved = each.where("to > from").select("first_line").distinct()
    return moved.withColumn("moved", f.lit(True))
