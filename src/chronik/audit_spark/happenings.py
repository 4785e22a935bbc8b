"""What happened to the run as a whole: its clock, leaders and faults, as a small history in memory.

The rows are few by nature and bounded here. The functions of `audit.location` and `audit.plots`
take them as they take a whole ledger.
"""

from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit.history import History as SmallHistory
from chronik.audit.location import Clock
from chronik.audit.rows import Kind, Row
from chronik.audit_spark.history import KEY, History, word

ROWS_MAX = 10_000
"""Faults, and changes of leaders."""


class Happenings(NamedTuple):
    """The rows, and the clock that they and the sends give."""

    history: SmallHistory
    clock: Clock


def happenings(history: History, blocks: DataFrame | None) -> Happenings:
    events = history.events
    rows = _rows(_clients(events)) + _rows(_faults(events)) + _rows(_leaders(events))
    start_ns = _start_ns(history, blocks)
    if start_ns is not None:
        rows.append(Row(Kind.SEND, begin_ns=start_ns))
    small = SmallHistory(rows)
    return Happenings(small, Clock(small))


def topics_of(history: History) -> list[str]:
    """The topics that were sent to."""
    sent = history.sends.select("topic").union(history.clean.select("topic")).distinct()
    return sorted(one["topic"] for one in sent.collect())


def _rows(frame: DataFrame) -> list[Row]:
    kept = frame.select("line", *Row._fields).limit(ROWS_MAX).collect()
    ordered = sorted(kept, key=lambda one: int(one["line"]))
    return [Row(*(one[name] for name in Row._fields)) for one in ordered]


def _clients(events: DataFrame) -> DataFrame:
    """The first client that told the time of day, and the first of all."""
    told = events.where("kind = 'client' AND begin_ns >= 0")
    walled = told.where(word("wall_ns").rlike("^[0-9]+$")).orderBy("line").limit(1)
    return walled.unionByName(told.orderBy("begin_ns").limit(1)).dropDuplicates(["line"])


def _faults(events: DataFrame) -> DataFrame:
    return events.where("kind = 'fault'").orderBy("begin_ns", "line")


def _leaders(events: DataFrame) -> DataFrame:
    """Who leads from when on, by time or by the order of the ledgers: changes only."""
    told = events.where("kind = 'epoch'").withColumn("leader", word("leader"))
    named = told.where("leader != ''")
    by_time = Window.partitionBy(*KEY).orderBy("begin_ns", f.col("leader").cast("int"))
    by_line = Window.partitionBy(*KEY).orderBy("line")
    changed = {
        name: f.coalesce(f.lag("leader").over(order) != f.col("leader"), f.lit(True))
        for name, order in (("in_time", by_time), ("in_line", by_line))
    }
    marked = named.withColumns(changed).where("in_time OR in_line")
    return marked.orderBy("begin_ns", "line")


def _start_ns(history: History, blocks: DataFrame | None) -> int | None:
    begun = history.sends.select("begin_ns")
    if blocks is not None:
        sent = blocks.where("kind = 'send'").select(f.col("begin_ns_min").alias("begin_ns"))
        begun = begun.union(sent)
    (one,) = begun.where("begin_ns >= 0").agg(f.min("begin_ns").alias("first")).collect()
    return None if one["first"] is None else int(one["first"])
