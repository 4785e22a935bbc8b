"""Anomalies of transactions: aborted-read (G1a), precommitted-read, G1c, and G0 that Kafka allows.

The graph between transactions is made and cut down by Spark: along every cycle the order in which
transactions first appear falls somewhere, so only transactions inside the span of an edge that
goes back can be on one. What remains goes to the driver, at most `EDGES_MAX` edges of it.
"""

from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit.anomaly import Level
from chronik.audit.history import Transaction
from chronik.audit.transactions import Graph, components
from chronik.audit_spark.findings import finding
from chronik.audit_spark.history import KEY, VALUE, History

EDGES_MAX = 1_000_000


class TooManyEdgesError(RuntimeError):
    """Transactions are interleaved so much that their cycles cannot be counted here."""


class Cycles(NamedTuple):
    """Components of more than one transaction."""

    circular: list[set[Transaction]]
    interleaved: list[set[Transaction]]


def read_anomalies(history: History) -> list[DataFrame]:
    sent = history.sends.select(
        *VALUE,
        f.col("process").alias("writer"),
        f.col("transaction").alias("written_in"),
        f.col("outcome").alias("sent"),
        f.col("line").alias("send_line"),
        "aborted",
    )
    reads = history.reads.join(sent, list(VALUE))
    return [_aborted(history, reads), _precommitted(reads)]


def _aborted(history: History, reads: DataFrame) -> DataFrame:
    """One row per read of what definitely was not written, or was taken back."""
    uncommitted = history.settings.where("NOT committed_reader").select("process")
    marked = reads.join(
        f.broadcast(uncommitted.withColumn("uncommitted", f.lit(True))), "process", "left"
    )
    failed = f.col("sent") == "fail"
    taken_back = f.col("aborted") & f.col("uncommitted").isNull()
    why = f.when(failed, "its send failed").otherwise("its transaction aborted")
    said = f.concat(
        f.lit("value "), f.col("sequence"), f.lit(" of "), f.col("sender"),
        f.lit(" was read, but "), why,
    )  # fmt: skip
    lines = [f.col("line"), f.col("send_line")]
    return finding(marked.where(failed | taken_back), "aborted-read", said, lines)


def _precommitted(reads: DataFrame) -> DataFrame:
    """One row per read by a transaction of its own write."""
    own = reads.where("written_in >= 0 AND writer = process AND written_in = transaction")
    said = f.concat(
        f.col("writer"), f.lit("'s transaction "), f.col("written_in"),
        f.lit(" read its own value "), f.col("sequence"),
    )  # fmt: skip
    return finding(own, "precommitted-read", said, [f.col("line"), f.col("send_line")])


def cycles(history: History) -> Cycles:
    """G1c and G0 by the graph of what is left after the cut."""
    if history.events.where("kind = 'transaction'").isEmpty():
        return Cycles([], [])
    reads = _read_edges(history)
    both = reads.unionByName(_write_edges(history)).distinct()
    first = history.sends.where("transaction >= 0").groupBy("process", "transaction")
    ranks = first.agg(f.min("line").alias("rank"))
    circular = list(components(_core(reads, ranks)))
    all_of = list(components(_core(both, ranks)))
    return Cycles(circular, [one for one in all_of if one not in circular])


def cycle_findings(history: History, found: Cycles) -> list[DataFrame]:
    """One row per component: at most as many as the core has transactions."""
    spark = history.events.sparkSession
    rows = [("G1c", str(Level.FAIL), _told("each read from the next: ", one, None)) for one in
            found.circular]  # fmt: skip
    rows += [("G0", str(Level.ALLOWED), _told("interleaved: ", one, 5)) for one in
             found.interleaved]  # fmt: skip
    if not rows:
        return []
    frame = spark.createDataFrame(rows, "name string, level string, said string")
    none = f.lit(None).cast("bigint")
    other = {"topic": f.lit(""), "partition": f.lit(-1), "offset": f.lit(-1)}
    return [finding(frame, f.col("name"), f.col("said"), [none], level=f.col("level"), **other)]


def _told(start: str, component: set[Transaction], limit: int | None) -> str:
    return start + ", ".join(f"{process}#{n}" for process, n in sorted(component)[:limit])


def _read_edges(history: History) -> DataFrame:
    """One row per writer and reader: the reader's transaction read what the writer's wrote."""
    uncommitted = history.settings.where("NOT committed_reader").select("process")
    readers = history.reads.where("transaction >= 0").join(
        f.broadcast(uncommitted), "process", "left_anti"
    )
    reader = f.struct("process", "transaction").alias("to")
    writers = _writers(history).select(*VALUE, f.col("writer").alias("from"))
    pairs = readers.select(*VALUE, reader).join(writers, list(VALUE))
    return pairs.select("from", "to").where("from != to").distinct()


def _write_edges(history: History) -> DataFrame:
    """One row per two transactions whose values follow each other in a log."""
    data = history.offsets.where("data").select(*KEY, "offset")
    order = Window.partitionBy(*KEY).orderBy("offset")
    follows = data.withColumn("following", f.lead("offset").over(order))
    written = history.values.join(_writers(history), list(VALUE)).select(*KEY, "offset", "writer")
    before = follows.join(written.withColumnRenamed("writer", "from"), [*KEY, "offset"])
    after = written.select(*KEY, f.col("offset").alias("following"), f.col("writer").alias("to"))
    pairs = before.join(after, [*KEY, "following"])
    return pairs.select("from", "to").where("from != to").distinct()


def _writers(history: History) -> DataFrame:
    sends = history.sends.where("transaction >= 0")
    return sends.select(*VALUE, f.struct("process", "transaction").alias("writer"))


def _core(edges: DataFrame, ranks: DataFrame) -> Graph:
    """The edges that can be on a cycle."""
    ranked = _ranked(_ranked(edges, ranks, "from"), ranks, "to").localCheckpoint()
    back = ranked.where("to_rank <= from_rank").select(
        f.col("to_rank").alias("low"), f.col("from_rank").alias("high")
    )
    order = Window.orderBy("low").rowsBetween(Window.unboundedPreceding, -1)
    opened = back.withColumn("reach", f.max("high").over(order))
    starts = f.sum(f.when(f.col("low") > f.coalesce("reach", f.lit(-1)), 1).otherwise(0))
    numbered = opened.withColumn("number", starts.over(Window.orderBy("low")))
    spans = numbered.groupBy("number").agg(f.min("low").alias("low"), f.max("high").alias("high"))
    inside = "from_rank BETWEEN low AND high AND to_rank BETWEEN low AND high"
    kept = ranked.join(f.broadcast(spans), f.expr(inside)).select("from", "to")
    found = kept.limit(EDGES_MAX + 1).collect()
    if len(found) > EDGES_MAX:
        raise TooManyEdgesError(f"more than {EDGES_MAX} pairs of transactions may be in cycles")
    graph: Graph = {}
    for one in found:
        graph.setdefault(tuple(one["from"]), set()).add(tuple(one["to"]))
    return graph


def _ranked(edges: DataFrame, ranks: DataFrame, end: str) -> DataFrame:
    """Transactions that only read have no rank of their own: the lowest makes them go back."""
    of_end = ranks.select(
        f.struct("process", "transaction").alias(end), f.col("rank").alias(f"{end}_rank")
    )
    return edges.join(of_end, end, "left").fillna({f"{end}_rank": -1})
