"""Records of the log as rows of a table that a registry explains, made where they are fetched.

A task fetches, decodes and hands Arrow batches to Spark: no function of Python is called by the
query's plan, and no pandas is needed. Only SQL over the log reads it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from chronik.pipeline import packed
from chronik.pipeline.batch_source import RangePartition
from chronik.pipeline.client import READ_COMMITTED, TopicPartition
from chronik.pipeline.fetch import OffsetRange, read_range
from chronik.pipeline.registry_rows import COLUMNS, RegistryRows
from chronik.pipeline.spark_types import spark_schema

FORMAT = "chronik-rows"


@dataclass(frozen=True)
class Work:
    """What the tasks do."""

    bootstrap: str
    ranges: tuple[OffsetRange, ...]
    rows: RegistryRows


class RowsDataSource(DataSource):
    """The format "chronik-rows"."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(self._work().rows.wanted)

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowsReader(self._work())

    def _work(self) -> Work:
        found: Work = packed.unpacked(self.options)
        return found


class RowsReader(DataSourceReader):
    """One range is one task."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def partitions(self) -> Sequence[InputPartition]:
        return [RangePartition(one) for one in self._work.ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark makes one up where there is nothing to read
        work, wanted = self._work, partition.wanted
        records = read_range(work.bootstrap, wanted, columns=COLUMNS, isolation=READ_COMMITTED)
        return work.rows(records)


def explained_rows(
    spark: SparkSession,
    bootstrap: str,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    rows: RegistryRows,
) -> DataFrame:
    """The records between offsets, committed ones only, as rows (or dead letters) of a table."""
    wanted = tuple(OffsetRange(*one, *edges) for one, edges in ranges.items())
    return packed.load(spark, FORMAT, Work(bootstrap, wanted, rows))
