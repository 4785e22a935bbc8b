"""Rows of parquet files in a store, read by the tasks with Arrow.

Spark's own reader needs a jar and a configuration of its own for each kind of store; files of a
folder are left to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from chronik.pipeline import packed
from chronik.pipeline.places import Access, dataset_of, is_remote
from chronik.pipeline.spark_types import spark_schema

FORMAT = "chronik-files"
TASKS_PER_CORE = 4


@dataclass(frozen=True)
class Work:
    """What the tasks do."""

    groups: tuple[tuple[str, ...], ...]
    """The files of each task."""
    schema: pa.Schema
    access: dict[str, str]


class FilesPartition(InputPartition):
    """The files of one task."""

    def __init__(self, files: tuple[str, ...]) -> None:
        super().__init__(files)
        self.files = files


class FilesDataSource(DataSource):
    """The format "chronik-files"."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(self._work().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return FilesReader(self._work())

    def _work(self) -> Work:
        found: Work = packed.unpacked(self.options)
        return found


class FilesReader(DataSourceReader):
    """Some files are one task."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def partitions(self) -> Sequence[InputPartition]:
        return [FilesPartition(one) for one in self._work.groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilesPartition)
        return iter(dataset_of(partition.files, self._work.schema, self._work.access).to_batches())


def parquet_rows(
    spark: SparkSession, files: Sequence[str], schema: pa.Schema, access: Access
) -> DataFrame:
    """The rows of files; columns that a file does not have yet are null in its rows."""
    wanted = spark_schema(schema)
    if not files:
        return spark.createDataFrame([], wanted)
    if not is_remote(files[0]):
        return spark.read.schema(wanted).parquet(*files)
    tasks = TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    groups = tuple(tuple(files[first::tasks]) for first in range(min(tasks, len(files))))
    return packed.load(spark, FORMAT, Work(groups, schema, dict(access)))
