"""One row per process, stretch and block of a log: what its rows there add up to.

A block is `BLOCK` consecutive offsets of a key. Two sets of rows are taken for equal if count, the
sums of offset, sequence and checksum, and sum and exclusive or of a 64-bit hash agree: any single
change breaks a plain sum for certain, several must also cancel out in the hash (ADR 8).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from chronik.audit_spark.fold import COUNTS, MAXIMA, MINIMA, PLACE, SUMS, TEXTS
from chronik.audit_spark.history import KEY

BLOCK = 1_024
GROUP = (*TEXTS, *PLACE)
BLOCK_KEY = (*KEY, "block")
FINGERPRINT = (*SUMS, "hash_xor")


def merged(parts: DataFrame) -> DataFrame:
    """One row per kind, process, stretch and block in which it has rows with an offset."""
    return parts.groupBy(*GROUP).agg(
        *(f.sum(name).alias(name) for name in (*SUMS, *COUNTS)),
        f.bit_xor("hash_xor").alias("hash_xor"),
        *(f.min(name).alias(name) for name in MINIMA),
        *(f.max(name).alias(name) for name in MAXIMA),
    )


def sent_blocks(found: DataFrame) -> DataFrame:
    """One row per block that acked sends are in: all producers together."""
    sent = found.where("kind = 'send'").groupBy(*BLOCK_KEY)
    return sent.agg(
        *(f.sum(name).alias(name) for name in SUMS),
        f.bit_xor("hash_xor").alias("hash_xor"),
        f.min("offset_min").alias("offset_min"),
        f.max("offset_max").alias("offset_max"),
        f.min("end_ns_min").alias("end_ns_min"),
    )
