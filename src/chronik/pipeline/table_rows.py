"""A table's rows as a DataFrame: its files, read by Spark's own parquet reader."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from chronik.pipeline.spark_types import spark_schema
from chronik.pipeline.tables import IngestTable


def table_rows(spark: SparkSession, table: IngestTable, schema: pa.Schema) -> DataFrame:
    """The newest snapshot; columns that a file does not have yet are null in its rows."""
    wanted = spark_schema(schema)
    files = table.files()
    if not files:
        return spark.createDataFrame([], wanted)
    return spark.read.schema(wanted).parquet(*files)
