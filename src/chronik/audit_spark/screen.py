"""Which blocks of a log must be judged row by row; in all others nothing can be wrong.

A block is clean if every stretch that went through it, and every replica that holds it, has
exactly the acked sends of the block, in order. A clean block can still matter to what happens next
to it, so the neighbours of the others are judged with them (ADR 8 has the argument for each rule).
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from chronik.audit.anomaly import Policy
from chronik.audit_spark.blocks import BLOCK_KEY, FINGERPRINT, sent_blocks
from chronik.audit_spark.history import KEY, PLACE, STRETCH, settings, stretches, topics
from chronik.audit_spark.realtime import overtaken
from chronik.audit_spark.stalls import stays_of


def suspicious(found: DataFrame, notes: DataFrame, block_size: int, policy: Policy) -> DataFrame:
    """One row per block that is not clean, or next to one that is not."""
    sent = sent_blocks(found).localCheckpoint()
    clients = settings(notes)
    parts = [
        _different(found, sent),
        _unread(found, sent),
        _passed_over(found, sent, notes),
        _doubtful(found),
        _disordered(found, block_size),
        _out_of_sequence(found),
        _new_epochs(found),
        _expiring(found, notes),
        overtaken(found, clients),
        _stalled(notes, found, block_size, policy),
    ]
    own = reduce(DataFrame.union, [part.select(*BLOCK_KEY) for part in parts]).distinct()
    return neighbours(own.localCheckpoint(), found)


def spans(found: DataFrame) -> DataFrame:
    """One row per stretch with records: first and last offset."""
    return (
        found.where("kind = 'record'")
        .groupBy(*STRETCH)
        .agg(f.min("offset_min").alias("first"), f.max("offset_max").alias("last"))
    )


def _different(found: DataFrame, sent: DataFrame) -> DataFrame:
    """What a stretch or replica has there is not what was sent."""
    acked = sent.select(*BLOCK_KEY, *(f.col(name).alias(f"sent_{name}") for name in FINGERPRINT))
    both = found.where("kind != 'send'").join(acked, list(BLOCK_KEY), "left")
    same = [f.col(name).eqNullSafe(f.col(f"sent_{name}")) for name in FINGERPRINT]
    return both.where(~reduce(Column.__and__, same))


def _unread(found: DataFrame, sent: DataFrame) -> DataFrame:
    """Nobody read it."""
    return sent.join(found.where("kind = 'record'"), list(BLOCK_KEY), "left_anti")


def _passed_over(found: DataFrame, sent: DataFrame, notes: DataFrame) -> DataFrame:
    """A stretch went through it and was given nothing there."""
    through = stretches(notes, spans(found)).select(*STRETCH, "first", "last")
    crossed = sent.join(f.broadcast(through), list(KEY)).where(
        "offset_max >= first AND offset_min <= last"
    )
    given = found.where("kind = 'record'").select(*STRETCH, "block")
    return crossed.join(given, [*STRETCH, "block"], "left_anti")


def _doubtful(found: DataFrame) -> DataFrame:
    """Damage, unknown ends or transactions."""
    return found.where("doubts > 0 OR disorders > 0")


def _disordered(found: DataFrame, block_size: int) -> DataFrame:
    """The rows that should have been followed, by offset."""
    spanned = found.where("disorders > 0").select(
        *KEY,
        f.floor(f.col("before_offset_min") / block_size).alias("low"),
        f.floor(f.col("before_offset_max") / block_size).alias("high"),
    )
    return _inside(found, spanned.distinct(), list(KEY), "block", "block")


def _out_of_sequence(found: DataFrame) -> DataFrame:
    """All sends of a producer whose sequence is in a span that is out of order."""
    sends = found.where("kind = 'send'")
    spanned = sends.where("disorders > 0").select(
        *PLACE,
        f.col("disorder_sequence_min").alias("low"),
        f.col("disorder_sequence_max").alias("high"),
    )
    return _inside(sends, spanned, list(PLACE), "sequence_min", "sequence_max")


def _inside(
    found: DataFrame, spanned: DataFrame, keys: list[str], first: str, last: str
) -> DataFrame:
    overlap = (f.col(last) >= f.col("low")) & (f.col(first) <= f.col("high"))
    return found.join(f.broadcast(spanned), keys).where(overlap)


def _new_epochs(found: DataFrame) -> DataFrame:
    """The leader epoch changes inside it, or is lower than in the block before."""
    read = (
        found.where("kind = 'record'")
        .groupBy(*BLOCK_KEY)
        .agg(f.min("epoch_min").alias("low"), f.max("epoch_max").alias("high"))
    )
    order = Window.partitionBy(*KEY).orderBy("block")
    known = read.where("high >= 0").withColumns(
        {"before": f.lag("high").over(order), "after": f.lead("low").over(order)}
    )
    return known.where("low != high OR low < before OR after < high")


def _expiring(found: DataFrame, notes: DataFrame) -> DataFrame:
    """The log starts inside it, or its topic is compacted."""
    started = notes.where("kind = 'log'").groupBy(*KEY).agg(f.max("position").alias("start"))
    cut = found.join(f.broadcast(started), list(KEY)).where(
        "offset_min < start AND offset_max >= start"
    )
    compact = topics(notes).where("compact").select("topic")
    whole = found.join(f.broadcast(compact), "topic", "left_semi")
    return cut.select(*BLOCK_KEY).unionByName(whole.select(*BLOCK_KEY))


def _stalled(notes: DataFrame, found: DataFrame, block_size: int, policy: Policy) -> DataFrame:
    """A consumer stayed long at a position inside it."""
    long = stays_of(notes).where(f.col("at_end_last") - f.col("at_end_first") >= policy.stall_ns)
    places = long.select(*KEY, f.floor(f.col("position") / block_size).alias("block")).distinct()
    return found.join(f.broadcast(places), list(BLOCK_KEY), "left_semi")


def neighbours(own: DataFrame, found: DataFrame) -> DataFrame:
    """One row per block of these and per block next to one: of the key, and of each producer.

    A step over a bad block ends in the next one; a send of unknown end that was read there is
    judged with the nearest sends of its producer.
    """
    marked = own.withColumn("bad", f.lit(True))
    of_key = found.select(*BLOCK_KEY).withColumn("process", f.lit("")).distinct()
    sends = found.where("kind = 'send'").select(*BLOCK_KEY, "process").distinct()
    producers = sends.select(*KEY, "process").distinct()
    beside = marked.join(producers, list(KEY)).withColumn("own", f.lit(False))
    lists = (
        of_key.unionByName(sends)
        .withColumn("own", f.lit(True))
        .join(marked, list(BLOCK_KEY), "left")
        .unionByName(beside)
        .groupBy(*BLOCK_KEY, "process")
        .agg(f.max("own").alias("own"), f.max("bad").alias("bad"))
    )
    order = Window.partitionBy(*KEY, "process").orderBy("block")
    near = lists.withColumns(
        {"before": f.lag("bad").over(order), "after": f.lead("bad").over(order)}
    )
    kept = near.where("own AND (bad OR before OR after)").select(*BLOCK_KEY)
    return kept.unionByName(own).distinct()
