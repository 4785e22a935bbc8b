"""How much lies between two offsets of a key: running sums, no range join."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit_spark.history import KEY


def weigh_between(probes: DataFrame, points: DataFrame, keys: tuple[str, ...] = KEY) -> DataFrame:
    """One row per probe `id`: the `weight` of the points strictly between `low` and `high`."""
    low = probes.select("id", *keys, f.col("low").alias("offset"), f.lit(-1).alias("sign"))
    high = probes.select("id", *keys, (f.col("high") - 1).alias("offset"), f.lit(1).alias("sign"))
    nothing = f.lit(0).cast("bigint")
    marks = low.unionByName(high).withColumn("weight", nothing)
    weights = points.select(
        f.lit(None).cast("bigint").alias("id"),
        *keys,
        "offset",
        f.lit(0).alias("sign"),
        f.col("weight").cast("bigint").alias("weight"),
    )
    upto = (
        Window.partitionBy(*keys)
        .orderBy("offset")
        .rangeBetween(Window.unboundedPreceding, Window.currentRow)
    )
    # Only keys that are asked about take part in the sort.
    asked = weights.join(f.broadcast(probes.select(*keys).distinct()), list(keys), "left_semi")
    summed = marks.unionByName(asked).withColumn("upto", f.sum("weight").over(upto))
    found = summed.where("id IS NOT NULL").groupBy("id")
    return found.agg(f.sum(f.col("upto") * f.col("sign")).alias("between"))


def one_each() -> Column:
    return f.lit(1).cast("bigint")
