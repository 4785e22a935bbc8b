"""Where and when acknowledged values were lost, per partition: `audit.location` as aggregations."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit.location import Loss, loss_entry
from chronik.audit.rows import Partition
from chronik.audit_spark.happenings import Happenings
from chronik.audit_spark.history import KEY, VALUE, History
from chronik.audit_spark.loss import OVERWRITTEN, replica_count, where
from chronik.audit_spark.order import Array
from chronik.audit_spark.replicas import PRESENT, RECORD, Near

RANGES_MAX = 1_000
"""Ranges of lost offsets that are told, per partition."""
NEAR_VALUES_MAX = 200_000
"""Up to so many lost values, tasks look for these alone; above, all records go to Spark."""


def near_of(lost: DataFrame) -> Near:
    """What the tasks look for in the replicas' files."""
    chosen = lost.select(*KEY, "offset", "sequence", "run").limit(NEAR_VALUES_MAX + 1).toArrow()
    many = chosen.num_rows > NEAR_VALUES_MAX
    runs: dict[str, list[int]] = defaultdict(list)
    for one in lost.select("topic", "run").distinct().collect():
        runs[one["topic"]].append(_run_number(one["run"]))
    sequences = np.unique(chosen.column("sequence").to_numpy())
    offsets = {} if many else _by_key(chosen)
    return Near(offsets, sequences, dict(runs), everything=many)


def _run_number(run: str) -> int:
    return int(run, 16) if run else 0


def _by_key(chosen: Any) -> dict[tuple[str, int], Array]:
    """Of each key, the offsets in order."""
    grouped = chosen.group_by(list(KEY)).aggregate([("offset", "list")])
    columns = (grouped.column(name).to_pylist() for name in (*KEY, "offset_list"))
    return {
        (topic, partition): np.array(sorted(offsets), np.int64)
        for topic, partition, offsets in zip(*columns, strict=True)
    }


def located(lost: DataFrame, history: History, stored: DataFrame | None) -> DataFrame:
    """One row per lost value and where it was lost, by ledgers and by the replicas' own files."""
    replicas = history.replicas
    if stored is not None:
        present = stored.where(f"kind = '{PRESENT}'").select(f.col("replica").alias("process"))
        replicas = replicas.union(present).distinct()
        lost = _with_files(lost, history, stored.where(f"kind = '{RECORD}'"))
    return lost.crossJoin(replica_count(replicas)).withColumn("where", where())


def _with_files(lost: DataFrame, history: History, records: DataFrame) -> DataFrame:
    """Other values at the offset, and holders, that only the files know."""
    sent = history.sends.select(*VALUE, f.col("checksum").alias("sent_checksum"))
    differs = (f.col("sent_checksum") >= 0) & (f.col("sent_checksum") != f.col("checksum"))
    whole = (
        records.where("outcome = 'ok'")
        .join(sent, list(VALUE), "left")
        .where(~f.coalesce(differs, f.lit(False)))
        .select(*KEY, "offset", f.struct(*VALUE).alias("found"))
    )
    place = f.broadcast(lost.select("line", *KEY, "offset", f.struct(*VALUE).alias("own")))
    there = whole.join(place, [*KEY, "offset"]).where("found != own")
    others = there.groupBy("line").agg(f.min("found").alias("found"))
    named = f.broadcast(lost.select("line", *VALUE))
    held = records.join(named, list(VALUE)).groupBy("line")
    holding = held.agg(f.collect_set("replica").alias("holding"))
    both = lost.join(others, "line", "left").join(holding, "line", "left")
    empty = f.array().cast("array<string>")
    union = f.array_union(f.coalesce("holders", empty), f.coalesce("holding", empty))
    holders = f.when(f.size(union) > 0, f.sort_array(union))
    other = f.coalesce("other", "found")
    return both.withColumns({"holders": holders, "other": other}).drop("found", "holding")


def losses(places: DataFrame, history: History, around: Happenings) -> list[dict[str, Any]]:
    """One entry per partition that lost something."""
    ranges, epochs, said = _ranges(places), _epochs(places, history), _places(places)
    acked = f.when(f.col("outcome") == "ok", f.col("end_ns"))
    counted = places.groupBy(*KEY).agg(
        f.count("*").alias("count"),
        f.coalesce(f.min(acked), f.lit(-1)).alias("first_ns"),
        f.coalesce(f.max(acked), f.lit(-1)).alias("last_ns"),
    )
    entries = []
    for one in counted.orderBy(*KEY).collect():
        key = Partition(one["topic"], one["partition"])
        times = (one["first_ns"], one["last_ns"])
        loss = Loss(key, one["count"], ranges[key], times, epochs[key], said[key])
        entries.append(loss_entry(around.history, around.clock, loss))
    return entries


def _grouped(rows: Iterable[Any], column: str) -> dict[Partition, list[Any]]:
    found: dict[Partition, list[Any]] = defaultdict(list)
    for one in rows:
        found[Partition(one["topic"], one["partition"])].append(one[column])
    return found


def _ranges(places: DataFrame) -> dict[Partition, list[list[int]]]:
    """Offsets in a row as pairs of the first and the last."""
    order = Window.partitionBy(*KEY).orderBy("offset")
    begins = f.coalesce(f.col("offset") > f.lag("offset").over(order) + 1, f.lit(True))
    numbered = places.where("offset >= 0").withColumn("begins", begins.cast("int"))
    islands = numbered.withColumn("island", f.sum("begins").over(order))
    bounds = islands.groupBy(*KEY, "island").agg(
        f.array(f.min("offset"), f.max("offset")).alias("bounds")
    )
    shown = bounds.where(f.col("island") <= RANGES_MAX).orderBy(*KEY, "island")
    return _grouped(shown.collect(), "bounds")


def _epochs(places: DataFrame, history: History) -> dict[Partition, list[int]]:
    """The leader epochs of what was read before the first lost offset, and from it on."""
    lost = places.where("offset >= 0").groupBy(*KEY).agg(f.min("offset").alias("lost"))
    read = history.offsets.where("first_read IS NOT NULL").join(f.broadcast(lost), list(KEY))
    epoch, before = f.col("first_read.epoch"), f.col("offset") < f.col("lost")
    found = read.groupBy(*KEY).agg(
        f.array_compact(
            f.array(
                f.max_by(f.when(before, epoch), f.when(before, f.col("offset"))),
                f.min_by(f.when(~before, epoch), f.when(~before, f.col("offset"))),
            )
        ).alias("epochs")
    )
    around = _grouped(found.collect(), "epochs")
    return defaultdict(list, {key: epochs[0] for key, epochs in around.items()})


def _places(places: DataFrame) -> dict[Partition, dict[str, int]]:
    """How many were lost where, most first; without the names of the values in it."""
    overwritten = f.col("where").startswith(f"{OVERWRITTEN},")
    said = f.when(overwritten, OVERWRITTEN).otherwise(f.col("where")).alias("said")
    counted = places.groupBy(*KEY, said).agg(
        f.count("*").alias("count"), f.min("offset").alias("first")
    )
    found: dict[Partition, dict[str, int]] = defaultdict(dict)
    for one in counted.orderBy(f.desc("count"), "first").collect():
        found[Partition(one["topic"], one["partition"])][one["said"]] = one["count"]
    return found
