"""Broker traces on Spark: where missing values were lost, as `audit.where` says it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from chronik.audit.where import Where
from chronik.audit_spark.history import KEY, History
from chronik.audit_spark.order import LINES_PER_FILE
from chronik.audit_spark.sources import Unit, read_files
from chronik.trace.events import EventKind
from chronik.trace.files import trace_files
from chronik.trace.reader import read_file
from chronik.trace.schema import COLUMNS

_TYPES = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint"}
_COLUMNS = [f"`{name}` {_TYPES.get(kind, 'string')}" for name, kind in COLUMNS]
SCHEMA = ", ".join([*_COLUMNS, "`line` bigint"])
"""`line` is the place of an event in its file, and of the file among all."""


def trace_events(spark: SparkSession, directories: Sequence[Path]) -> DataFrame:
    """One row per trace event of all nodes."""
    found = [str(path) for folder in directories for path in trace_files(folder)]

    def read(unit: Unit) -> Iterator[pa.RecordBatch]:
        for number, name in unit:
            line = number * LINES_PER_FILE
            for batch in read_file(Path(name)):
                lines = pa.array(np.arange(line, line + batch.num_rows))
                line += batch.num_rows
                yield pa.RecordBatch.from_arrays(
                    [*batch.columns, lines], names=[*batch.schema.names, "line"]
                )

    return read_files(spark, [[(n, name)] for n, name in enumerate(found)], SCHEMA, read)


def where_lost(history: History, events: DataFrame) -> dict[str, int]:
    """How many acked values that nobody read were lost where."""
    gone = history.offsets.where("expired").select(*KEY, "offset")
    unread = history.sends.where("committed AND NOT read AND offset >= 0")
    lost = unread.join(gone, [*KEY, "offset"], "left_anti").select(*KEY, "offset", "line")
    trails = _trails(lost, events).crossJoin(f.broadcast(_completeness(events)))
    counted = trails.groupBy(_place().alias("place")).count()
    return {Where(one["place"]): one["count"] for one in counted.collect()}


def _trails(lost: DataFrame, events: DataFrame) -> DataFrame:
    """One row per missing value: the appends and fetches that hold it, and the watermark."""
    appended = _holding(lost, events, EventKind.APPENDED, "appended")
    served = _holding(lost, events, EventKind.FETCH_DATA, "served")
    open_ended = (
        events.where((f.col("kind") == int(EventKind.FETCH_DATA)) & f.col("last_offset").isNull())
        .groupBy(*KEY)
        .agg(f.min(f.coalesce("base_offset", f.lit(0))).alias("perhaps_from"))
    )
    moved = events.where(f.col("kind") == int(EventKind.WATERMARK)).groupBy(*KEY)
    highest = moved.agg(f.max("high_watermark").alias("watermark"))
    return (
        lost.join(appended, "line", "left")
        .join(served, "line", "left")
        .join(f.broadcast(open_ended), list(KEY), "left")
        .join(f.broadcast(highest), list(KEY), "left")
        .fillna(0, ["appended", "served", "watermark"])
    )


def _holding(lost: DataFrame, events: DataFrame, kind: EventKind, name: str) -> DataFrame:
    ranges = events.where(f.col("kind") == int(kind)).select(*KEY, "base_offset", "last_offset")
    held = ranges.join(f.broadcast(lost), list(KEY)).where(
        "offset BETWEEN base_offset AND last_offset"
    )
    return held.groupBy("line").agg(f.count("*").alias(name))


def _completeness(events: DataFrame) -> DataFrame:
    """One row: whether nothing was dropped or expired."""
    missing = events.where(f.col("kind").isin(int(EventKind.DROPPED), int(EventKind.EXPIRED)))
    return missing.agg((f.count("*") == 0).alias("complete"))


def _place() -> Column:
    """The last arrow that can be found."""
    incomplete = ~f.col("complete")
    perhaps = f.coalesce(f.col("perhaps_from") <= f.col("offset"), f.lit(False))
    return (
        f.when((f.col("appended") == 0) & incomplete, str(Where.UNKNOWN))
        .when(f.col("appended") == 0, str(Where.NOT_APPENDED))
        .when(f.col("appended") > 1, str(Where.OVERWRITTEN))
        .when(f.col("watermark") <= f.col("offset"), str(Where.NOT_COMMITTED))
        .when(f.col("served") > 0, str(Where.NOT_CONSUMED))
        .when(incomplete | perhaps, str(Where.UNKNOWN))
        .otherwise(str(Where.NOT_SERVED))
    )
