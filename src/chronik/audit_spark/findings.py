"""One row per occurrence of an anomaly, and how they become a verdict's anomalies."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit.anomaly import EXAMPLES_MAX, Anomaly, Example, Level
from chronik.audit.rows import Row

COLUMNS = ("name", "level", "topic", "partition", "offset", "statement", "lines", "at")


def finding(
    frame: DataFrame, name: Column | str, statement: Column, lines: list[Column], **other: Column
) -> DataFrame:
    """One row per occurrence: its name and level, where it is, what is said, the rows it shows."""
    at = other.get("at", f.coalesce(lines[0], f.lit(-1)))
    return frame.select(
        (f.lit(name) if isinstance(name, str) else name).alias("name"),
        other.get("level", f.lit(str(Level.FAIL))).alias("level"),
        other.get("topic", f.col("topic")).alias("topic"),
        other.get("partition", f.col("partition")).cast("bigint").alias("partition"),
        other.get("offset", f.col("offset")).cast("bigint").alias("offset"),
        statement.alias("statement"),
        f.array_compact(f.array(*lines)).cast("array<bigint>").alias("lines"),
        at.cast("bigint").alias("at"),
    )


def union(frames: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)


def value_name(sender: str = "sender", sequence: str = "sequence") -> Column:
    named = f.concat(f.lit("value "), f.col(sequence), f.lit(" of "), f.col(sender))
    return f.when(f.col(sender) == "", f.lit("an unnamed value")).otherwise(named)


def key_name() -> Column:
    return f.concat_ws("-", "topic", f.col("partition").cast("string"))


def anomalies(found: DataFrame, events: DataFrame) -> list[Anomaly]:
    """Counts of all, and the first few of each with their rows: nothing else is collected."""
    order = Window.partitionBy("name", "level").orderBy("topic", "partition", "at", "offset")
    whole = Window.partitionBy("name", "level")
    ranked = found.withColumns(
        {"rank": f.row_number().over(order), "total": f.count("*").over(whole)}
    )
    shown = ranked.where(f.col("rank") <= EXAMPLES_MAX).collect()
    rows = rows_at(events, {line for one in shown for line in one["lines"]})
    by_kind: dict[tuple[str, str], Anomaly] = {}
    for one in sorted(shown, key=lambda one: int(one["rank"])):
        kind = (one["name"], one["level"])
        anomaly = by_kind.setdefault(kind, Anomaly(kind[0], Level(kind[1]), one["total"]))
        proof = tuple(rows[line] for line in one["lines"] if line in rows)
        anomaly.examples.append(Example(one["statement"], proof))
    levels = list(Level)
    return sorted(by_kind.values(), key=lambda one: (levels.index(one.level), one.name))


def rows_at(events: DataFrame, lines: set[int]) -> dict[int, Row]:
    """The rows that prove the examples."""
    if not lines:
        return {}
    kept = events.where(f.col("line").isin(sorted(lines)))
    return {
        one["line"]: Row(*(one[name] for name in Row._fields))
        for one in kept.select("line", *Row._fields).collect()
    }
