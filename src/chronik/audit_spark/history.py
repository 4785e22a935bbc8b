"""The tables that the rules judge: the same facts as `audit.history`, as joins and windows.

`Context` says what is known of the blocks of a log whose rows were left out because they agree;
without it all rows are there. A value is (sender, sequence); a key is (topic, partition).
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

KEY = ("topic", "partition")
VALUE = ("sender", "sequence")
PLACE = ("process", *KEY)
STRETCH = (*PLACE, "stretch")
_SEND = (
    "line",
    "process",
    "begin_ns",
    "end_ns",
    "topic",
    "partition",
    "offset",
    "checksum",
    "key",
    "outcome",
    "detail",
    "transaction",
    "run",
)


@dataclass(frozen=True, slots=True)
class Context:
    """What stands for the rows of clean blocks."""

    stretches: DataFrame
    """One row per stretch with records: first and last offset, rows."""
    clean: DataFrame
    """One row per clean block: block, offset_min, offset_max, rows, end_ns_min."""
    replicas: DataFrame
    """One row per replica."""


@dataclass(frozen=True, slots=True)
class History:
    """Each table with its grain; all are kept for the rules that follow."""

    events: DataFrame
    settings: DataFrame
    topics: DataFrame
    sends: DataFrame
    records: DataFrame
    values: DataFrame
    reads: DataFrame
    offsets: DataFrame
    logs: DataFrame
    stretches: DataFrame
    replicas: DataFrame
    clean: DataFrame


def history(events: DataFrame, context: Context | None = None) -> History:
    """All tables of the events; `context` stands for what they leave out.

    Each table is computed once (`localCheckpoint`): a plan of all of them would be too long.
    """
    clients, about = settings(events), topics(events)
    bare = sends(events).localCheckpoint()
    given = records(events, bare).localCheckpoint()
    placed = values(given, bare).localCheckpoint()
    seen = reads(given, placed).localCheckpoint()
    judged = judged_sends(bare, seen, transactions(events), clients).localCheckpoint()
    clean = context.clean if context else _no_blocks(events)
    ends = logs(events, placed, given, clean).localCheckpoint()
    return History(
        events,
        clients,
        about,
        judged,
        given,
        placed,
        seen,
        offsets(placed, given, judged, ends, about).localCheckpoint(),
        ends,
        stretches(events, context.stretches if context else spans(given)).localCheckpoint(),
        context.replicas if context else replicas(given),
        clean,
    )


def word(name: str) -> Column:
    """The value of a setting in `detail`; empty where it is not named."""
    return f.regexp_extract("detail", rf"(?:^|\s){name.replace('.', '[.]')}=(\S*)", 1)


def settings(events: DataFrame) -> DataFrame:
    """One row per process that told its settings."""
    told = events.where("kind = 'client'").groupBy("process")
    return told.agg(f.max_by("detail", "line").alias("detail")).select(
        "process",
        (word("idempotent") == "true").alias("idempotent"),
        (word("isolation") != "read_uncommitted").alias("committed_reader"),
        word("clock").alias("clock"),
    )


def topics(events: DataFrame) -> DataFrame:
    """One row per topic whose settings are known."""
    told = events.where("kind = 'topic'").groupBy("topic")
    return told.agg(f.max_by("detail", "line").alias("detail")).select(
        "topic",
        word("cleanup.policy").contains("compact").alias("compact"),
        word("partitions").alias("named_partitions"),
    )


def transactions(events: DataFrame) -> DataFrame:
    """One row per transaction with a known end."""
    ended = events.where("kind = 'transaction'").groupBy("process", "transaction")
    return ended.agg(f.max_by("outcome", "line").alias("ended"))


def sends(events: DataFrame) -> DataFrame:
    """One row per value that was sent: what its last row says."""
    sender = f.when(f.col("sender") == "", f.col("process")).otherwise(f.col("sender"))
    sent = events.where("kind = 'send'").select(sender.alias("sender"), "sequence", *_SEND)
    last = sent.groupBy(*VALUE).agg(f.max(f.struct(*_SEND)).alias("send"))
    return last.select(*VALUE, "send.*")


def records(events: DataFrame, bare: DataFrame) -> DataFrame:
    """One row per record that a consumer was given or a replica holds; is it damaged?"""
    found = events.where("kind IN ('record', 'replica')")
    sent = bare.select(*VALUE, f.col("checksum").alias("sent_checksum"))
    differs = (
        (f.col("sent_checksum") >= 0)
        & (f.col("checksum") >= 0)
        & (f.col("sent_checksum") != f.col("checksum"))
    )
    damaged = (f.col("outcome") == "fail") | f.coalesce(differs, f.lit(False))
    return found.join(sent, list(VALUE), "left").withColumn("damaged", damaged)


def values(given: DataFrame, bare: DataFrame) -> DataFrame:
    """One row per offset and value there, with the row that showed it first.

    Records show first, then replicas, then acks: `shown_by` is 0, 1 or 2.
    """
    seen = given.where("NOT damaged").select(
        *KEY,
        "offset",
        *VALUE,
        f.when(f.col("kind") == "record", 0).otherwise(1).alias("shown_by"),
        "line",
        "key",
    )
    acked = bare.where("outcome != 'fail' AND offset >= 0")
    both = seen.unionByName(
        acked.select(*KEY, "offset", *VALUE, f.lit(2).alias("shown_by"), "line", "key")
    )
    first = both.groupBy(*KEY, "offset", *VALUE).agg(
        f.min(f.struct("shown_by", "line", "key")).alias("first")
    )
    return first.select(*KEY, "offset", *VALUE, "first.*")


def reads(given: DataFrame, placed: DataFrame) -> DataFrame:
    """One row per value and record that shows it; a damaged one shows what was at its offset."""
    consumed = given.where("kind = 'record'")
    columns = (*KEY, "offset", "line", "process", "end_ns", "transaction", "damaged")
    whole = consumed.where("NOT damaged").select(*VALUE, *columns)
    there = placed.select(*KEY, "offset", *VALUE)
    broken = consumed.where("damaged").select(*columns).join(there, [*KEY, "offset"])
    return whole.unionByName(broken.select(*VALUE, *columns))


def judged_sends(
    bare: DataFrame, seen: DataFrame, ended: DataFrame, clients: DataFrame
) -> DataFrame:
    """One row per value that was sent: whether it was read, committed, and where it is."""
    first = seen.groupBy(*VALUE).agg(
        f.min(f.struct("damaged", "line", *KEY, "offset")).alias("first"),
        f.min(f.when(f.col("end_ns") >= 0, f.col("end_ns"))).alias("read_ns"),
    )
    read = bare.join(first, list(VALUE), "left").withColumn("read", f.col("first").isNotNull())
    told = read.join(ended, ["process", "transaction"], "left")
    opened = told.join(
        read_transactions(bare, seen, clients), ["process", "transaction"], "left"
    ).withColumn("torn", f.coalesce("torn", f.lit(False)))
    unknown = (f.col("transaction") >= 0) & (f.col("ended").isNull() | (f.col("ended") == "info"))
    aborted = (f.col("transaction") >= 0) & (f.coalesce("ended", f.lit("")) == "fail")
    committed = f.when((f.col("outcome") == "fail") | aborted, False).when(unknown, f.col("torn"))
    known = committed.otherwise((f.col("outcome") == "ok") | f.col("read"))
    settled = opened.withColumns({"aborted": aborted, "committed": known})
    of_process = clients.select("process", "idempotent", "clock")
    return settled.join(f.broadcast(of_process), "process", "left").fillna(
        {"idempotent": False, "clock": ""}
    )


def read_transactions(bare: DataFrame, seen: DataFrame, clients: DataFrame) -> DataFrame:
    """One row per transaction of which a reader of committed data saw something."""
    uncommitted = clients.where("NOT committed_reader").select("process")
    readers = seen.join(f.broadcast(uncommitted), "process", "left_anti")
    writers = bare.where("transaction >= 0").select(*VALUE, "process", "transaction")
    pairs = readers.select(*VALUE).join(writers, list(VALUE))
    return pairs.select("process", "transaction").distinct().withColumn("torn", f.lit(True))


def logs(events: DataFrame, placed: DataFrame, given: DataFrame, clean: DataFrame) -> DataFrame:
    """One row per key of which anything is known: log start, and end if a final reader saw it."""
    final = events.where("kind = 'log'").groupBy(*KEY)
    ends = final.agg(
        f.greatest(f.max("position"), f.lit(0)).alias("start"),
        f.max_by(f.when(f.col("offset") >= 0, f.col("offset")), _known_line("offset")).alias("end"),
        f.max(_known_line("offset")).alias("end_line"),
    )
    known = [frame.select(*KEY) for frame in (placed, given, clean, ends)]
    keys = known[0].union(known[1]).union(known[2]).union(known[3]).distinct()
    return keys.join(ends, list(KEY), "left").fillna({"start": 0})


def _known_line(column: str) -> Column:
    return f.when(f.col(column) >= 0, f.col("line"))


def offsets(
    placed: DataFrame, given: DataFrame, judged: DataFrame, ends: DataFrame, about: DataFrame
) -> DataFrame:
    """One row per offset: how many values, whether it holds data, was read, has expired."""
    sent = judged.select(*VALUE, "committed")
    held = placed.join(sent, list(VALUE), "left")
    per_offset = held.groupBy(*KEY, "offset").agg(
        f.count("*").alias("values"),
        f.max(f.coalesce("committed", f.lit(True))).alias("data"),
    )
    consumed = given.where("kind = 'record'").groupBy(*KEY, "offset")
    first = consumed.agg(f.min(f.struct("line", "epoch")).alias("first_read"))
    both = per_offset.join(first, [*KEY, "offset"], "full").fillna({"values": 0, "data": False})
    gone = compacted(placed, about).withColumn("compacted", f.lit(True))
    known = both.join(gone, [*KEY, "offset"], "left").join(
        f.broadcast(ends.select(*KEY, "start")), list(KEY), "left"
    )
    expired = f.coalesce("compacted", f.lit(False)) | (f.col("offset") < f.col("start"))
    return known.select(*KEY, "offset", "values", "data", "first_read", expired.alias("expired"))


def compacted(placed: DataFrame, about: DataFrame) -> DataFrame:
    """One row per offset of a compacted topic whose key has a newer record."""
    topic = f.broadcast(about.where("compact").select("topic"))
    held = placed.join(topic, "topic", "left_semi")
    newest = held.groupBy(*KEY, "key").agg(f.max("offset").alias("newest"))
    older = held.join(newest, [*KEY, "key"]).where("newest > offset")
    return older.select(*KEY, "offset").distinct()


def spans(given: DataFrame) -> DataFrame:
    """One row per stretch with records: first and last offset."""
    return (
        given.where("kind = 'record'")
        .groupBy(*STRETCH)
        .agg(f.min("offset").alias("first"), f.max("offset").alias("last"))
    )


def stretches(events: DataFrame, spanned: DataFrame) -> DataFrame:
    """One row per stretch with records: who opened it, and the offsets that it went through."""
    moved = events.where("kind IN ('assign', 'seek', 'revoke')").select(
        *STRETCH,
        f.when(f.col("kind") == "revoke", "")
        .when((f.col("kind") == "seek") | (f.col("detail") == ""), f.col("kind"))
        .otherwise(f.col("detail"))
        .alias("opened_by"),
        f.when((f.col("kind") != "revoke") & (f.col("position") >= 0), f.col("position")).alias(
            "asked"
        ),
    )
    opened = spanned.join(moved, list(STRETCH), "left").fillna({"opened_by": ""})
    return opened.withColumn("first", f.least("first", "asked"))


def replicas(given: DataFrame) -> DataFrame:
    """One row per replica whose files were read."""
    return given.where("kind = 'replica'").select("process").distinct()


def _no_blocks(events: DataFrame) -> DataFrame:
    empty = events.where(f.lit(False))
    return empty.select(
        *KEY,
        f.col("offset").alias("block"),
        f.col("offset").alias("offset_min"),
        f.col("offset").alias("offset_max"),
        f.col("line").alias("rows"),
        f.col("end_ns").alias("end_ns_min"),
    )
