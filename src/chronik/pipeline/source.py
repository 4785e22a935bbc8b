"""`spark.read.format("chronik")`: a topic as a DataFrame, with the options of Spark's Kafka source.

A job written for `format("kafka")` moves by changing the format's name, also `readStream`, `write`
and `writeStream`. It works with any cluster that speaks Kafka's protocol. `register(spark)` makes
the format known to a session.
"""

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from chronik.pipeline.batch_source import ChronikReader
from chronik.pipeline.decode import SCHEMA
from chronik.pipeline.files_source import FilesDataSource
from chronik.pipeline.offsets import SourceOptions, known_columns, read_options
from chronik.pipeline.rows_source import RowsDataSource
from chronik.pipeline.sink import ChronikStreamWriter, ChronikWriter, write_options
from chronik.pipeline.spark_types import spark_schema
from chronik.pipeline.stream_source import ChronikStreamReader


def register(spark: SparkSession) -> None:
    """Makes the format known to the session, and those that SQL has beside it."""
    spark.dataSource.register(ChronikDataSource)
    spark.dataSource.register(FilesDataSource)
    spark.dataSource.register(RowsDataSource)


class ChronikDataSource(DataSource):
    """The format "chronik"."""

    @classmethod
    def name(cls) -> str:
        return "chronik"

    def schema(self) -> StructType:
        columns = read_options(self.options).columns
        return spark_schema(pa.schema([SCHEMA.field(name) for name in columns]))

    def _read_options(self, schema: StructType) -> SourceOptions:
        """A schema that the user gives, `.schema("offset BIGINT")`, prunes as `columns` does."""
        return replace(read_options(self.options), columns=known_columns(schema.names))

    def reader(self, schema: StructType) -> DataSourceReader:
        return ChronikReader(self._read_options(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return ChronikStreamReader(self._read_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return ChronikWriter(write_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return ChronikStreamWriter(write_options(self.options))
