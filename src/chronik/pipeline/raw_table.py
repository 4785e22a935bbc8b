"""One row per record: key and value as bytes, with its place and time in the log.

The columns are those of Spark's Kafka source without the topic, which is the table's name.
"""

from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from chronik.pipeline.decode import SCHEMA

COLUMNS = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
ARROW = pa.schema([SCHEMA.field(name) for name in COLUMNS])
PLACE = ("partition", "offset")


def rows(records: DataFrame) -> DataFrame:
    """The table's rows from records of the source."""
    return records.select(*COLUMNS)


@dataclass
class RawShape:
    """Records as they are; none is bad."""

    columns: tuple[str, ...] = COLUMNS
    new: dict[str, pa.DataType] = field(default_factory=dict)
    widened: bool = False

    def rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, None]:
        return batch.select(list(COLUMNS)), None


@dataclass(frozen=True)
class RawMode:
    """For the executors."""

    def shape(self) -> RawShape:
        return RawShape()
