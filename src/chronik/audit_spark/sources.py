"""Files as Spark tables, one task per file, in Arrow batches from end to end."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

File = tuple[int, str]
"""A file's number and name: the number orders the rows of all files."""
Unit = Sequence[File]
"""Files that are read by one task, one after the other."""
Read = Callable[[Unit], Iterator[pa.RecordBatch]]
FORMAT = "chronik-files"


class FilePartition(InputPartition):
    """The files of one process are one task: the order of their rows is known nowhere else."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self.unit = unit


class FileReader(DataSourceReader):
    """Hands each unit to a function, on the worker that has the task."""

    def __init__(self, units: Sequence[Unit], read: Read) -> None:
        self._units, self._read = list(units), read

    def partitions(self) -> Sequence[InputPartition]:
        return [FilePartition(unit) for unit in self._units]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilePartition)
        return self._read(partition.unit)


def read_files(spark: SparkSession, units: Sequence[Unit], schema: str, read: Read) -> DataFrame:
    """One row per row that the function gives."""
    spark.dataSource.register(_format_of(FileReader(units, read), schema))
    return spark.read.format(FORMAT).load()


def _format_of(file_reader: FileReader, table_schema: str) -> type[DataSource]:
    """A class, because that is what Spark takes; it goes to the workers with its reader."""

    class Files(DataSource):
        """Files by their names."""

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return table_schema

        def reader(self, schema: StructType) -> DataSourceReader:
            del schema
            return file_reader

    return Files


def schema_of(columns: Sequence[str], texts: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {'string' if name in texts else 'bigint'}" for name in columns)


def record_batch(columns: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            values if isinstance(values, pa.Array) else pa.array(values)
            for values in columns.values()
        ],
        names=list(columns),
    )
