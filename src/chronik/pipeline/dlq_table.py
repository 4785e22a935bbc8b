"""One row per record that its table could not take: the bytes, the reason, and its place.

A record is either here or in its table, never in both and never in none.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from chronik.pipeline.decode import SCHEMA

SUFFIX = "__dlq"
REASON = "reason"
COLUMNS = ("partition", "offset", "timestamp", "key", "value", REASON)
ARROW = pa.schema([SCHEMA.field(name) for name in COLUMNS[:-1]] + [pa.field(REASON, pa.string())])


def rows(judged: DataFrame) -> DataFrame:
    """The bad ones of records that have a `reason` column."""
    return judged.where(F.col(REASON).isNotNull()).select(*COLUMNS)


def letters(batch: pa.RecordBatch, reasons: Any) -> pa.RecordBatch:
    """The same within a task: the records that have a reason."""
    columns = [batch.column(name) for name in COLUMNS[:-1]]
    return pa.RecordBatch.from_arrays([*columns, reasons], schema=ARROW).filter(reasons.is_valid())
