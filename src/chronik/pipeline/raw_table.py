"""One row per record: key and value as bytes, with its place and time in the log.

The columns are those of Spark's Kafka source without the topic, which is the table's name.
"""

import pyarrow as pa
from pyspark.sql import DataFrame

from chronik.pipeline.decode import SCHEMA

COLUMNS = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
ARROW = pa.schema([SCHEMA.field(name) for name in COLUMNS])
PLACE = ("partition", "offset")


def rows(records: DataFrame) -> DataFrame:
    """The table's rows from records of the source."""
    return records.select(*COLUMNS)
