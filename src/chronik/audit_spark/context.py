"""What stands for the rows of clean blocks: sums for the rules in memory, tables for Spark's."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from chronik.audit.rows import Kind, Outcome, Partition, Row
from chronik.audit_spark.history import KEY, STRETCH, Context
from chronik.audit_spark.reduce import LeftOut
from chronik.audit_spark.session import kept_whole
from chronik.audit_spark.sources import frame_of

pc: Any = pyarrow.compute
BLOCK_KEY = (*KEY, "block")


class Clean(NamedTuple):
    """Of one key, what its clean blocks hold: each of the values was read, at its offset."""

    values: int
    records: int
    offset_min: int
    offset_max: int


def clean_of(left_out: LeftOut, rows: Iterable[Row]) -> dict[Partition, Clean]:
    """Per key with clean blocks; without the rows of them that were asked for by value."""
    blocks, judged = left_out
    asked = _asked(left_out, rows)
    found = {}
    for number, key in enumerate(blocks.keys):
        clean = (blocks.place_key == number) & ~judged & (blocks.sent["rows"] > 0)
        if clean.any():
            records = blocks.records & clean[blocks.place]
            found[key] = Clean(
                int(blocks.sent["rows"][clean].sum()) - asked[Kind.SEND, key],
                int(blocks.column("rows")[records].sum()) - asked[Kind.RECORD, key],
                int(blocks.sent["offset_min"][clean].min()),
                int(blocks.sent["offset_max"][clean].max()),
            )
    return found


def _asked(left_out: LeftOut, rows: Iterable[Row]) -> Counter[tuple[str, Partition]]:
    """How many rows of clean blocks are there all the same, by kind and key."""
    size = left_out.blocks.size
    judged = {
        (key, block)
        for key, numbers in left_out.blocks.chosen(left_out.judged).items()
        for block in numbers.tolist()
    }
    counted: Counter[tuple[str, Partition]] = Counter()
    for row in rows:
        key = Partition(row.topic, row.partition)
        acked = row.kind == Kind.SEND and row.outcome == Outcome.OK and row.offset >= 0
        if (acked or row.kind == Kind.RECORD) and (key, row.offset // size) not in judged:
            counted[row.kind, key] += 1
    return counted


def context_of(spark: SparkSession, left_out: LeftOut, rows: DataFrame) -> Context:
    """The same as tables."""
    block = f.floor(f.col("offset") / left_out.blocks.size).alias("block")
    acked = rows.where("kind = 'send' AND offset >= 0 AND outcome = 'ok'").select(*KEY, block)
    asked = acked.groupBy(*BLOCK_KEY).agg(f.count("*").alias("asked"))
    clean = frame_of(spark, _clean_table(left_out)).join(asked, list(BLOCK_KEY), "left")
    left = clean.withColumn("rows", f.col("rows") - f.coalesce("asked", f.lit(0))).drop("asked")
    table = left_out.blocks.table
    replicas = table.filter(pc.field("kind") == str(Kind.REPLICA)).select(["process"])
    return Context(
        kept_whole(frame_of(spark, _stretch_table(table))),
        kept_whole(left),
        frame_of(spark, replicas.group_by("process").aggregate([])),
    )


def _clean_table(left_out: LeftOut) -> pa.Table:
    """One row per clean block."""
    blocks = left_out.blocks
    clean = np.flatnonzero(~left_out.judged & (blocks.sent["rows"] > 0))
    keys = [blocks.keys[number] for number in blocks.place_key[clean].tolist()]
    names: dict[str, Any] = {
        "topic": pa.array([key.topic for key in keys], pa.string()),
        "partition": pa.array([key.partition for key in keys], pa.int64()),
    }
    numbers = {"block": blocks.place_block, **blocks.sent}
    kept = ("block", "offset_min", "offset_max", "rows", "end_ns_min")
    return pa.table(names | {name: pa.array(numbers[name][clean]) for name in kept})


def _stretch_table(blocks: pa.Table) -> pa.Table:
    """One row per stretch with records: first and last offset."""
    read = blocks.filter(pc.field("kind") == str(Kind.RECORD)).group_by(list(STRETCH))
    spans = read.aggregate([("offset_min", "min"), ("offset_max", "max")])
    return spans.rename_columns([*STRETCH, "first", "last"])
