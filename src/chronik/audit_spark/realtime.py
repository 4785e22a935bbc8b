"""Blocks in which a send may stand before one that was acked before it began.

Between two producers a and b: a's block k can be overtaken by b's block j <= k only if something
in j began after something in k was acked. Running maxima over the blocks find all such pairs.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit_spark.blocks import BLOCK_KEY
from chronik.audit_spark.history import KEY


def overtaken(found: DataFrame, clients: DataFrame) -> DataFrame:
    """One row per block of either side; sends of one producer are judged by their sequence."""
    clocks = f.broadcast(clients.select("process", "clock"))
    sends = found.where("kind = 'send'").join(clocks, "process", "left").fillna({"clock": ""})
    bounds = sends.select(*BLOCK_KEY, "clock", "process", "begin_ns_max", "end_ns_min")
    producers = bounds.select(*KEY, "clock", f.col("process").alias("other")).distinct()
    paired = bounds.join(producers, [*KEY, "clock"]).where("process != other")
    pair = ("acked_by", "begun_by")
    acked = paired.select(
        *BLOCK_KEY,
        "clock",
        f.col("process").alias(pair[0]),
        f.col("other").alias(pair[1]),
        f.col("end_ns_min").alias("acked"),
        f.lit(None).cast("bigint").alias("begun"),
    )
    begun = paired.select(
        *BLOCK_KEY,
        "clock",
        f.col("other").alias(pair[0]),
        f.col("process").alias(pair[1]),
        f.lit(None).cast("bigint").alias("acked"),
        f.col("begin_ns_max").alias("begun"),
    )
    order = Window.partitionBy(*KEY, "clock", *pair).orderBy("block")
    upto = order.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    onward = order.rangeBetween(Window.currentRow, Window.unboundedFollowing)
    both = acked.unionByName(begun).withColumns(
        {"begun_before": f.max("begun").over(upto), "acked_after": f.min("acked").over(onward)}
    )
    return both.where("acked < begun_before OR acked_after < begun").select(*BLOCK_KEY)
