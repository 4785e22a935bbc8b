"""Acked, log and table compared: every record of the log is in the table once, as it was.

Spark computes both sides from their own bytes: the log through Fetch, the table from its files with
Spark's own parquet reader, which had no part in writing them. Per partition it compares the number
of rows, the first and last offset, and the sum of a hash over all columns; rows of the dead letter
table count as the table's. Where a partition differs, a join by offset says what is wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from chronik.pipeline import dlq_table, json_table, raw_table
from chronik.pipeline.client import EARLIEST, LATEST, READ_COMMITTED, Cluster
from chronik.pipeline.files_source import parquet_rows
from chronik.pipeline.ingest import log_records
from chronik.pipeline.session import session
from chronik.pipeline.tables import IngestTable, Tables
from chronik.pipeline.warehouse import MODE, State, Warehouse, table_name

EXAMPLES_MAX = 5
_JSON_TEXT = r"^(\{.*\}|\[.*\]|-?[0-9.]+([eE][+-]?[0-9]+)?)$"


@dataclass(frozen=True)
class PartitionProof:
    """One partition: what the log holds between the table's offsets, and what the table holds."""

    partition: int
    first: int
    end: int
    log_rows: int
    table_rows: int
    lost: int = 0
    doubled: int = 0
    altered: int = 0
    invented: int = 0
    """Rows of the table that the log does not have."""
    examples: tuple[str, ...] = ()
    behind: int = 0
    """Offsets of the log after the table's end: not ingested yet, no error."""

    @property
    def proven(self) -> bool:
        return not (self.lost or self.doubled or self.altered or self.invented)


@dataclass(frozen=True)
class Verdict:
    """The proof for one topic."""

    topic: str
    table: str
    partitions: list[PartitionProof]
    acked: int | None = None
    acked_missing: int = 0
    acked_examples: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where nothing was lost, doubled, altered or invented."""
        complete = not (self.problems or self.acked_missing)
        return complete and all(one.proven for one in self.partitions)

    def total(self, name: str) -> int:
        """The sum of a number over the partitions."""
        return sum(getattr(one, name) for one in self.partitions)

    def text(self) -> str:
        """The verdict in one line."""
        word = "PROVEN" if self.ok else "BROKEN"
        acked = (
            ""
            if self.acked is None
            else f"{self.acked:,} acked, {self.acked_missing:,} of them missing; "
        )
        counts = ", ".join(
            f"{self.total(name):,} {name}" for name in ("lost", "doubled", "altered", "invented")
        )
        return (
            f"{word} {self.topic}: {acked}{self.total('log_rows'):,} in the log, "
            f"{self.total('table_rows'):,} in the table; {counts}"
        )


def prove(
    bootstrap: str,
    topic: str,
    warehouse: str | Path | Tables,
    ledger: Any = None,
    *,
    spark: SparkSession | None = None,
    master: str = "local[*]",
) -> Verdict:
    """Compares the topic with its table, up to the offsets that the table has committed.

    ledger: a parquet file or an Arrow table with the columns topic, partition, offset and outcome
    ("ok" for acknowledged) of what producers sent; rows of another `kind` than "send" are ignored.
    """
    spark = spark or session(master)
    place = Warehouse(warehouse) if isinstance(warehouse, str | Path) else warehouse
    table = place.existing(topic)
    if table is None:
        return Verdict(topic, table_name(topic), [], problems=("there is no table",))
    name = table.name
    if table.properties[MODE] not in {"raw", "json"}:
        return Verdict(topic, name, [], problems=("only raw and JSON tables can be proven",))
    starts, ends = _log_edges(bootstrap, topic)
    state = _still_there(table.state(), starts)
    log, stored = _sides(spark, bootstrap, topic, place, table, state)
    found = _compare(log, stored, state, ends)
    verdict = Verdict(topic, name, found, problems=_shrunk(state, ends))
    return _with_ledger(spark, verdict, stored, state, ledger)


def _log_edges(bootstrap: str, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    with Cluster(bootstrap) as cluster:
        partitions = cluster.partitions([topic])
        starts = cluster.offsets(dict.fromkeys(partitions, EARLIEST))
        ends = cluster.offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
    return {p: at for (_, p), at in starts.items()}, {p: at for (_, p), at in ends.items()}


def _still_there(state: State, starts: dict[int, int]) -> State:
    """What retention has deleted from the log can no longer be compared with it."""
    first = {p: max(at, starts.get(p, at)) for p, at in state.first.items()}
    return replace(state, first=first)


def _shrunk(state: State, ends: dict[int, int]) -> tuple[str, ...]:
    return tuple(
        f"partition {partition}: the table ends at offset {end}, the log already at "
        f"{ends.get(partition, 0)}"
        for partition, end in sorted(state.next.items())
        if ends.get(partition, 0) < end
    )


# -- both sides in the same shape: partition p, offset o, hash h


def _sides(
    spark: SparkSession, bootstrap: str, topic: str, place: Tables, table: IngestTable, state: State
) -> tuple[DataFrame, DataFrame]:
    ranges = {
        (topic, one): (state.first[one], state.next[one])
        for one in state.next
        if state.next[one] > state.first[one]
    }
    parallelism = spark.sparkContext.defaultParallelism
    records = log_records(spark, bootstrap, ranges, parallelism=parallelism)
    if table.properties[MODE] == "raw":
        log = _hashed(raw_table.rows(records), raw_table.ARROW.names)
        stored = _hashed(table_rows(spark, table, raw_table.ARROW), raw_table.ARROW.names)
    else:
        letters = place.existing(topic, dlq_table.SUFFIX)
        log, stored = _json_sides(spark, records, table, letters)
    return log, stored.where(~_before(state.first))


def table_rows(spark: SparkSession, table: IngestTable, schema: pa.Schema) -> DataFrame:
    """The newest snapshot's rows."""
    return parquet_rows(spark, table.files(), schema, table.access)


def _before(first: dict[int, int]) -> Column:
    """True for rows that are older than the log's first record."""
    found = F.lit(False)
    for partition, offset in first.items():
        found |= (F.col("p") == partition) & (F.col("o") < offset)
    return found


def _json_sides(
    spark: SparkSession, records: DataFrame, table: IngestTable, letters: IngestTable | None
) -> tuple[DataFrame, DataFrame]:
    fields = json_table.fields_in(table.schema())
    schema = json_table.arrow_schema(fields)
    judged = json_table.judged(records, fields)
    texts = [one.name for one in schema if one.type == pa.string()]
    log = _hashed(_same_texts(json_table.rows(judged, fields), texts), schema.names, "_")
    letters_columns = dlq_table.COLUMNS[:-1]  # two parsers may give two reasons
    log = log.union(_hashed(dlq_table.rows(judged), letters_columns))
    stored = _hashed(_same_texts(table_rows(spark, table, schema), texts), schema.names, "_")
    if letters is not None:
        bad = table_rows(spark, letters, dlq_table.ARROW)
        stored = stored.union(_hashed(bad, letters_columns))
    return log, stored


def _same_texts(rows: DataFrame, texts: Sequence[str]) -> DataFrame:
    """Objects, arrays and numbers that are kept as text: two parsers write 1e10 in two ways."""
    same = {}
    for name in texts:
        text = _column(name)
        value = F.coalesce(F.get_json_object(text, "$"), text)
        same[name] = F.when(text.rlike(_JSON_TEXT), value).otherwise(text)
    return rows.withColumns(same) if same else rows


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _hashed(rows: DataFrame, columns: Sequence[str], prefix: str = "") -> DataFrame:
    place = [F.col(f"{prefix}partition").alias("p"), F.col(f"{prefix}offset").alias("o")]
    return rows.select(*place, _hash(columns).alias("h"))


def _hash(columns: Sequence[str]) -> Column:
    # xxhash64 skips nulls; saying which are null keeps (null, x) and (x, null) apart.
    values = [_column(name) for name in columns]
    return F.xxhash64(*values, *[one.isNull() for one in values])


# -- the comparison


def _compare(
    log: DataFrame, stored: DataFrame, state: State, ends: dict[int, int]
) -> list[PartitionProof]:
    here, there = _sums(log), _sums(stored)
    found = []
    for partition in sorted({*state.next, *here, *there}):
        one, other = here.get(partition, (0,) * 4), there.get(partition, (0,) * 4)
        end = state.next.get(partition, 0)
        proof = PartitionProof(
            partition,
            state.first.get(partition, 0),
            end,
            one[0],
            other[0],
            behind=max(0, ends.get(partition, end) - end),
        )
        found.append(proof if one == other else _explain(log, stored, proof))
    return found


def _sums(side: DataFrame) -> dict[int, tuple[Any, ...]]:
    rows = side.groupBy("p").agg(
        F.count("*"), F.min("o"), F.max("o"), F.sum(F.col("h").cast("decimal(38,0)"))
    )
    return {row[0]: tuple(row[1:]) for row in rows.collect()}


def _explain(log: DataFrame, stored: DataFrame, proof: PartitionProof) -> PartitionProof:
    """Joins the two sides of one partition by offset, and counts each kind of difference."""
    mine = F.col("p") == proof.partition
    left = log.where(mine).select("o", F.col("h").alias("log"))
    # One row per offset: how often it is there, and whether one of its rows is as in the log.
    right = (
        stored.where(mine)
        .groupBy("o")
        .agg(F.count("*").alias("times"), F.collect_set("h").alias("hashes"))
    )
    joined = left.join(right, "o", "full_outer").withColumn("what", _difference())
    wrong = joined.where(F.col("what").isNotNull()).groupBy("what")
    counts = {row[0]: row[1:] for row in wrong.agg(F.count("*"), F.min("o"), F.max("o")).collect()}
    examples = tuple(
        f"partition {proof.partition}: {count:,} {what} between offsets {low} and {high}"
        for what, (count, low, high) in sorted(counts.items())
    )
    numbers = {what: int(values[0]) for what, values in counts.items()}
    return replace(proof, examples=examples, **numbers)


def _difference() -> Column:
    return (
        F.when(F.col("times").isNull(), "lost")
        .when(F.col("log").isNull(), "invented")
        .when(F.size("hashes") != 1, "altered")
        .when(F.element_at("hashes", 1) != F.col("log"), "altered")
        .when(F.col("times") > 1, "doubled")
    )


# -- what was acknowledged


def _with_ledger(
    spark: SparkSession, verdict: Verdict, stored: DataFrame, state: State, ledger: Any
) -> Verdict:
    if ledger is None:
        return verdict
    acked = acknowledged(_frame(spark, ledger), verdict.topic).select("p", "o")
    missing = acked.join(stored, ["p", "o"], "left_anti")
    examples = [
        f"partition {row.p} offset {row.o}" for row in missing.limit(EXAMPLES_MAX).collect()
    ]
    return replace(
        verdict, acked=acked.count(), acked_missing=missing.count(), acked_examples=tuple(examples)
    )


def acknowledged(ledger: DataFrame, topic: str) -> DataFrame:
    """One row (p, o) per record that a producer was told is stored."""
    sends = ledger.where((F.col("topic") == topic) & (F.col("outcome") == "ok"))
    if "kind" in ledger.columns:
        sends = sends.where(F.col("kind") == "send")
    known = sends.where(F.col("offset") >= 0)
    return known.select(F.col("partition").cast("int").alias("p"), F.col("offset").alias("o"))


def _frame(spark: SparkSession, ledger: Any) -> DataFrame:
    if isinstance(ledger, pa.Table):
        return spark.createDataFrame(ledger)
    return spark.read.parquet(str(ledger))
