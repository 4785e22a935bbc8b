"""Anomalies of absence: lost-write, unseen, truncation, torn-transaction."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from chronik.audit_spark.findings import finding
from chronik.audit_spark.history import KEY, VALUE, History


def losses(history: History) -> DataFrame:
    """One row per committed value that nobody read and somebody should have."""
    found = lost_values(history).crossJoin(replica_count(history.replicas))
    said = f.concat(
        f.lit("value "), f.col("sequence"), f.lit(" of "), f.col("sender"),
        f.lit(" was never read: "), where(),
    )  # fmt: skip
    lines = [f.col("line"), f.col("next_line"), f.col("end_line")]
    return finding(found, f.col("name"), said, lines)


def lost_values(history: History) -> DataFrame:
    """One row per lost value: what else stands at its offset, which replicas hold it."""
    unread = history.sends.where("committed AND NOT read")
    named = _placed(history, unread).unionByName(_unplaced(history, unread))
    located = named.join(_others(history), [*KEY, "offset"], "left")
    held = located.join(_holders(history), list(VALUE), "left")
    other = f.get(
        f.filter(
            "held",
            lambda one: (one["sender"] != f.col("sender")) | (one["sequence"] != f.col("sequence")),
        ),
        0,
    )
    told = f.struct(other["sender"].alias("sender"), other["sequence"].alias("sequence"))
    return held.withColumn("other", f.when(other.isNotNull(), told)).drop("held")


_COLUMNS = (
    "name", *VALUE, *KEY, "offset", "line", "end_line", "begin_ns", "end_ns", "outcome",
    "run",
)  # fmt: skip


def _placed(history: History, unread: DataFrame) -> DataFrame:
    """One row per missing value with an offset; None where no reader can be expected."""
    gone = history.offsets.where("expired").select(*KEY, "offset")
    placed = unread.where("offset >= 0").join(gone, [*KEY, "offset"], "left_anti")
    ended = placed.join(f.broadcast(history.logs), list(KEY), "left")
    spans = f.broadcast(history.stretches.select(*KEY, "first", "last")).alias("span")
    inside = f.expr("lost.topic = span.topic AND lost.partition = span.partition").__and__(
        f.expr("lost.offset BETWEEN span.first AND span.last")
    )
    missed = ended.alias("lost").join(spans, inside, "left_semi").select("line")
    known = ended.join(missed.withColumn("missed", f.lit(True)), "line", "left")
    named = known.withColumn("name", _name()).where("name IS NOT NULL")
    return named.select(*_COLUMNS)


def _name() -> Column:
    missed = f.coalesce("missed", f.lit(False))
    return (
        f.when(f.col("end").isNotNull() & (f.col("offset") >= f.col("end")), "truncation")
        .when(~missed & f.col("end").isNull(), f.lit(None))
        .when(f.col("torn"), "torn-transaction")
        .when(missed, "lost-write")
        .otherwise("unseen")
    )


def _unplaced(history: History, unread: DataFrame) -> DataFrame:
    """Acked without an offset: only a final read of the whole topic can miss it."""
    unplaced = unread.where("offset < 0 AND outcome = 'ok'")
    own = unplaced.select(*KEY).join(history.logs.select(*KEY), list(KEY), "left_anti")
    ends = history.logs.select(*KEY, "end").unionByName(
        own.withColumn("end", f.lit(None).cast("bigint"))
    )
    finished = (
        ends.where("partition >= 0")
        .groupBy("topic")
        .agg(f.min(f.col("end").isNotNull()).alias("finished"))
    )
    missed = unplaced.join(finished.where("finished"), "topic", "left_semi")
    ended = missed.join(f.broadcast(history.logs.select(*KEY, "end_line")), list(KEY), "left")
    return ended.withColumn("name", f.lit("unseen")).select(*_COLUMNS)


def _others(history: History) -> DataFrame:
    """One row per offset: the values there, and the record that was read there."""
    held = history.values.groupBy(*KEY, "offset").agg(
        f.sort_array(f.collect_list(f.struct("shown_by", "line", *VALUE))).alias("held")
    )
    first = history.offsets.select(*KEY, "offset", f.col("first_read.line").alias("next_line"))
    return held.join(first, [*KEY, "offset"], "left")


def _holders(history: History) -> DataFrame:
    """One row per value that a replica holds: which ones."""
    stored = history.records.where("kind = 'replica'").groupBy(*VALUE)
    return stored.agg(f.sort_array(f.collect_set("process")).alias("holders"))


def replica_count(replicas: DataFrame) -> DataFrame:
    """One row: how many replicas there are."""
    return f.broadcast(replicas.agg(f.count("*").alias("replicas")))


OVERWRITTEN = "overwritten"


def where() -> Column:
    """Where a missing value was lost, as far as reads and replica logs can tell."""
    other = f.col("other")
    overwritten = f.concat(
        f.lit(f"{OVERWRITTEN}, its offset holds value "),
        other["sequence"],
        f.lit(" of "),
        other["sender"],
    )
    only = f.concat(
        f.lit("appended at "), f.array_join("holders", ", "), f.lit(" only, never committed")
    )
    return (
        f.when(f.col("offset") < 0, "no offset is known for it")
        .when(other.isNotNull(), overwritten)
        .when(f.col("replicas") == 0, "no replica log or trace tells where")
        .when(f.col("holders").isNull(), "acked, but in no replica's log")
        .when(f.size("holders") == f.col("replicas"), "in every replica's log, not served")
        .otherwise(only)
    )
