"""Anomalies of single values: phantom, corrupt, inconsistent-offsets, duplicate."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from chronik.audit.anomaly import Level, Policy
from chronik.audit_spark.findings import finding, key_name, value_name
from chronik.audit_spark.history import KEY, VALUE, History


def phantoms(history: History) -> DataFrame:
    """One row per value that was read and that nobody sent."""
    whole = history.reads.where("NOT damaged")
    unsent = whole.join(history.sends.select(*VALUE), list(VALUE), "left_anti")
    first = unsent.groupBy(*VALUE).agg(f.min(f.struct("line", *KEY, "offset")).alias("first"))
    said = f.concat(value_name(), f.lit(" was read but never sent"))
    return finding(first.select(*VALUE, "first.*"), "phantom", said, [f.col("line")])


def corruption(history: History) -> DataFrame:
    """One row per record that does not agree with its checksum or with the one sent."""
    broken = history.records.where("damaged").select(*KEY, "offset", "line")
    sent = history.sends.select(*VALUE, f.col("line").alias("send_line"))
    there = history.values.join(sent, list(VALUE)).groupBy(*KEY, "offset")
    first = there.agg(f.min_by("send_line", f.struct("shown_by", "line")).alias("send_line"))
    shown = broken.join(first, [*KEY, "offset"], "left")
    where = f.concat(key_name(), f.lit(" offset "), f.col("offset"))
    said = f.concat(f.lit("the record at "), where, f.lit(" is damaged"))
    return finding(shown, "corrupt", said, [f.col("line"), f.col("send_line")])


def inconsistent_offsets(history: History) -> DataFrame:
    """One row per offset of a key that holds two values."""
    held = history.values.withColumn("named", value_name()).groupBy(*KEY, "offset")
    all_of = held.agg(
        f.sort_array(f.collect_list(f.struct("shown_by", "line", "named"))).alias("held")
    ).where(f.size("held") > 1)
    names = f.array_join("held.named", " and ")
    said = f.concat(key_name(), f.lit(" offset "), f.col("offset"), f.lit(" holds "), names)
    lines = [f.col("held")[0]["line"], f.col("held")[1]["line"]]
    return finding(all_of, "inconsistent-offsets", said, lines, at=f.col("offset"))


def duplicates(history: History, policy: Policy) -> DataFrame:
    """One row per value at two offsets of a key; an ack counts only where no other value is."""
    seen = history.records.where("NOT damaged").select(*KEY, *VALUE, "offset", "line")
    alone = history.offsets.where("values = 1").select(*KEY, "offset")
    acked = history.values.where("shown_by = 2").join(alone, [*KEY, "offset"])
    places = seen.unionByName(acked.select(*KEY, *VALUE, "offset", "line"))
    once = places.groupBy(*KEY, *VALUE, "offset").agg(f.min("line").alias("line"))
    found = once.groupBy(*KEY, *VALUE).agg(
        f.sort_array(f.collect_list(f.struct("offset", "line"))).alias("places")
    )
    sent = history.sends.select(*VALUE, "idempotent", "outcome")
    twice = found.where(f.size("places") > 1).join(sent, list(VALUE), "left")
    joined = f.array_join(f.transform("places", lambda one: one["offset"].cast("string")), ", ")
    said = f.concat(value_name(), f.lit(" is at offsets "), joined, f.lit(" of "), key_name())
    lines = [f.col("places")[0]["line"], f.col("places")[1]["line"]]
    offset = f.col("places")[0]["offset"]
    return finding(twice, "duplicate", said, lines, level=_level(policy), offset=offset)


def _level(policy: Policy) -> Column:
    """Kafka promises one copy to idempotent producers, and to a send acked without a retry."""
    allowed = f.lit(policy.at_least_once) | (f.col("outcome") == "info")
    promised = f.col("outcome").isNull() | f.col("idempotent")
    return f.when(promised | ~allowed, str(Level.FAIL)).otherwise(str(Level.ALLOWED))
