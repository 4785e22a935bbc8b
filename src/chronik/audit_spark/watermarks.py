"""Anomalies of time: epochs, ends and watermarks that go back."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit_spark.findings import finding, key_name
from chronik.audit_spark.history import KEY, PLACE, History

_LINES = ("before.line", "line")


def _lines() -> list[Column]:
    return [f.col(name) for name in _LINES]


def told_epochs(history: History) -> DataFrame:
    """One row per time that a consumer was told a lower leader epoch than before."""
    order = Window.partitionBy(*PLACE).orderBy("line")
    told = history.events.where("kind = 'epoch'")
    before = f.lag(f.struct("line", "epoch")).over(order)
    fell = told.withColumn("before", before).where(f.col("epoch") < f.col("before.epoch"))
    said = f.concat(
        key_name(), f.lit(": "), f.col("process"), f.lit(" saw epoch "), f.col("before.epoch"),
        f.lit(", then "), f.col("epoch"),
    )  # fmt: skip
    return finding(fell, "epoch-regression", said, _lines())


def log_epochs(history: History) -> DataFrame:
    """One row per offset whose leader epoch is lower than that of the one before it."""
    read = history.offsets.where("first_read.epoch >= 0").select(
        *KEY, "offset", f.col("first_read.epoch").alias("epoch"), f.col("first_read.line")
    )
    order = Window.partitionBy(*KEY).orderBy("offset")
    before = f.lag(f.struct("line", "epoch")).over(order)
    fell = read.withColumn("before", before).where(f.col("epoch") < f.col("before.epoch"))
    said = f.concat(
        key_name(), f.lit(": epoch "), f.col("epoch"), f.lit(" at "), f.col("offset"),
        f.lit(", behind "), f.col("before.epoch"),
    )  # fmt: skip
    return finding(fell, "epoch-regression", said, _lines(), at=f.col("offset"))


def end_regressions(history: History) -> DataFrame:
    """One row per time that a consumer saw the end of a log go back."""
    known = history.events.where("kind = 'poll' AND partition >= 0 AND offset >= 0")
    order = Window.partitionBy(*PLACE).orderBy("line")
    before = f.lag(f.struct("line", "offset")).over(order)
    fell = known.withColumn("before", before).where(f.col("offset") < f.col("before.offset"))
    said = f.concat(
        key_name(), f.lit(": the end went from "), f.col("before.offset"), f.lit(" to "),
        f.col("offset"),
    )  # fmt: skip
    return finding(fell, "truncation", said, _lines())


def watermark_regressions(history: History) -> DataFrame:
    """One row per watermark below an earlier one: of its node, or of any leader."""
    told = history.events.where("kind = 'watermark'")
    of_node = Window.partitionBy(*PLACE).orderBy("begin_ns", "line")
    of_key = Window.partitionBy(*KEY).orderBy("begin_ns", "line")
    earlier = of_key.rowsBetween(Window.unboundedPreceding, -1)
    leads = f.col("detail") != "follower"
    ranked = f.struct(
        "offset",
        (-f.col("begin_ns")).alias("sooner"),
        (-f.col("line")).alias("first"),
        "line",
        "process",
    )
    own = f.lag(f.struct("offset", "line", "process")).over(of_node)
    seen = told.withColumns({"own": own, "highest": f.max(f.when(leads, ranked)).over(earlier)})
    top = f.struct("highest.offset", "highest.line", "highest.process")
    fell_here = f.col("offset") < f.col("own.offset")
    fell_there = leads & (f.col("offset") < f.col("highest.offset"))
    before = f.when(fell_here, f.col("own")).when(fell_there, top)
    fell = seen.withColumn("before", before).where("before IS NOT NULL")
    said = f.concat(
        key_name(), f.lit(": "), f.col("before.offset"), f.lit(" at "), f.col("before.process"),
        f.lit(", then "), f.col("offset"), f.lit(" at "), f.col("process"),
    )  # fmt: skip
    return finding(fell, "watermark-regression", said, _lines())
