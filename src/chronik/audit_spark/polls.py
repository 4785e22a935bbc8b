"""Anomalies of reading: poll-skip, nonmonotonic-poll, and both inside one poll (int-).

The step from one record to the next is in the row itself (`before_*`), so nothing is sorted to
find it; only steps over a gap ask what lies between.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from chronik.audit.anomaly import Level
from chronik.audit_spark.between import one_each, weigh_between
from chronik.audit_spark.findings import finding, key_name
from chronik.audit_spark.history import KEY, STRETCH, History


def poll_anomalies(history: History) -> list[DataFrame]:
    steps = history.records.where("kind = 'record' AND before_line >= 0")
    inside = steps.where("before_stretch = stretch AND offset != before_offset + 1")
    return [_backward(inside), _skips(history, inside), *_rebalances(history, steps)]


def _prefixed(name: str) -> Column:
    same = f.col("poll") == f.col("before_poll")
    return f.when(same, f"int-{name}").otherwise(name)


def _path() -> Column:
    return f.concat(
        key_name(), f.lit(": "), f.col("process"), f.lit(" went from "), f.col("before_offset"),
        f.lit(" to "), f.col("offset"),
    )  # fmt: skip


_LINES = ("before_line", "line")


def _backward(steps: DataFrame) -> DataFrame:
    """One row per step back, or in place."""
    back = steps.where("offset <= before_offset")
    lines = [f.col(name) for name in _LINES]
    return finding(back, _prefixed("nonmonotonic-poll"), _path(), lines, at=f.col("line"))


def existing(history: History) -> DataFrame:
    """One row per offset that holds data which somebody read and which has not expired."""
    found = history.offsets.where("data AND first_read IS NOT NULL AND NOT expired")
    return found.select(*KEY, "offset")


def _probes(steps: DataFrame) -> DataFrame:
    return steps.select(
        f.col("line").alias("id"),
        *STRETCH,
        f.col("before_offset").alias("low"),
        f.col("offset").alias("high"),
    )


def _skips(history: History, steps: DataFrame) -> DataFrame:
    """One row per step over values that exist and that this stretch was not given at all."""
    forward = steps.where("offset > before_offset + 1")
    probes = _probes(forward)
    known = existing(history)
    all_there = weigh_between(probes, known.withColumn("weight", one_each()))
    consumed = history.records.where("kind = 'record'").select(*STRETCH, "offset").distinct()
    own = consumed.join(known, [*KEY, "offset"]).withColumn("weight", one_each())
    given = weigh_between(probes, own, STRETCH).withColumnRenamed("between", "given")
    counted = all_there.join(given, "id").withColumn("skipped", f.col("between") - f.col("given"))
    skipped = forward.join(counted.where("skipped > 0"), f.col("line") == f.col("id"))
    said = f.concat(_path(), f.lit(" over "), f.col("skipped"), f.lit(" known values"))
    lines = [f.col(name) for name in _LINES]
    return finding(skipped, _prefixed("poll-skip"), said, lines, at=f.col("line"))


def _rebalances(history: History, steps: DataFrame) -> list[DataFrame]:
    """Across a rebalance a group may go back (uncommitted work) or forward (others' work)."""
    opened = history.stretches.where("opened_by = 'rebalance'").select(*STRETCH)
    crossed = steps.where("before_stretch != stretch").join(opened, list(STRETCH), "left_semi")
    forward = crossed.where("offset > before_offset")
    whole = history.clean.join(f.broadcast(history.logs.select(*KEY, "start")), list(KEY))
    blocks = whole.where("offset_min >= start").select(
        *KEY, f.col("offset_min").alias("offset"), f.col("rows").alias("weight")
    )
    points = existing(history).withColumn("weight", one_each()).unionByName(blocks)
    gap = weigh_between(_probes(forward), points).where("between > 0")
    skipped = forward.join(gap, f.col("line") == f.col("id"))
    said = f.concat(
        f.col("process"), f.lit(": "), f.col("before_offset"), f.lit(" to "), f.col("offset"),
        f.lit(" across a rebalance"),
    )  # fmt: skip
    lines = [f.col(name) for name in _LINES]
    other = {"at": f.col("line"), "level": f.lit(str(Level.ALLOWED))}
    back = crossed.where("offset <= before_offset")
    return [
        finding(back, "nonmonotonic-poll", said, lines, **other),
        finding(skipped, "poll-skip", said, lines, **other),
    ]
