"""Files as Spark tables, one task per process, in Arrow batches from end to end.

`read_files` gives a table of any size that stays with Spark; `gathered` brings small tables to the
driver in one plain job, without the seconds that planning and compiling a query take.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
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
Gather = Callable[[Unit], Iterable[tuple[str, pa.Table]]]
"""Names tables, and gives what a unit adds to each; without any, it would be too much."""
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


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A small table for Spark, which takes none without rows, nor empty parts."""
    if table.num_rows:
        return spark.createDataFrame(table.combine_chunks())
    texts = [field.name for field in table.schema if field.type == pa.string()]
    return spark.createDataFrame([], schema_of(table.column_names, texts))


def record_batch(columns: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            values if isinstance(values, pa.Array) else pa.array(values)
            for values in columns.values()
        ],
        names=list(columns),
    )


def gathered(
    spark: SparkSession | None,
    units: Sequence[Unit],
    schemas: Mapping[str, pa.Schema],
    gather: Gather,
) -> dict[str, pa.Table] | None:
    """The tables that all tasks give together; None where one of them had too much to give.

    For what is small by nature or bounded by the task: all of it is in memory at once. Without a
    session the tasks run here, one after the other.
    """
    largest_first = sorted(units, key=lambda unit: bytes_of([unit]), reverse=True)

    def run(unit: Unit) -> list[tuple[str, bytes]]:
        return [(name, packed(table)) for name, table in gather(unit)]

    if spark is None:
        given = [run(unit) for unit in units]
    else:
        given = spark.sparkContext.parallelize(largest_first, len(units)).map(run).collect()
    if not all(given):
        return None
    parts = [(name, unpacked(data)) for part in given for name, data in part]
    return {
        name: pa.concat_tables([schema.empty_table(), *(t for n, t in parts if n == name)])
        for name, schema in schemas.items()
    }


def bytes_of(units: Iterable[Unit]) -> int:
    return sum(Path(name).stat().st_size for unit in units for _, name in unit)


def packed(table: pa.Table) -> bytes:
    """As it goes from a task to the driver."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()
