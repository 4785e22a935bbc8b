"""The work of one task: records in, one parquet file out, and only its name to the driver."""

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.fs
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from chronik.pipeline import dlq_table, raw_table
from chronik.pipeline.fetch import OffsetRange, read_range

pc: Any = pyarrow.compute
"""Its functions are made at run time; the type stubs do not know them all."""
ROW_GROUP_ROWS = 262_144
LISTING = "_written.json"


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is complete on disk and in no table yet."""

    path: str
    rows: int
    bad: bool = False


class FileWriter:
    """One parquet file, opened with the first rows; without rows there is no file."""

    def __init__(self, folder: str, name: str) -> None:
        # The name is new at every attempt: what a killed attempt left is never taken for data.
        self.path = f"{folder}/{name}-{uuid.uuid4().hex}.parquet"
        self.rows = 0
        self._writer: Any = None
        self._sink: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._writer is None:
            self._open(batch.schema)
        self._writer.write_batch(batch, row_group_size=ROW_GROUP_ROWS)
        self.rows += batch.num_rows

    def close(self) -> Written | None:
        """The file, safe on disk."""
        if self._writer is None:
            return None
        self._writer.close()
        self._sink.close()
        _sync(self.path)
        return Written(self.path, self.rows)

    def _open(self, schema: pa.Schema) -> None:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(self.path)
        filesystem.create_dir(os.path.dirname(path), recursive=True)
        self._sink = filesystem.open_output_stream(path)
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="zstd", compression_level=1, use_dictionary=False
        )


def _sync(path: str) -> None:
    """A commit must not name a file that a power cut can still empty."""
    if path.startswith("file://"):
        descriptor = os.open(path.removeprefix("file://"), os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class RawTask:
    """Reads ranges and writes raw rows; the records never leave this process."""

    bootstrap: str
    folder: str
    isolation: int

    def __call__(self, wanted: OffsetRange) -> list[Written]:
        writer = FileWriter(self.folder, f"{wanted.partition:05d}-{wanted.start:020d}")
        batches = read_range(
            self.bootstrap, wanted, columns=raw_table.COLUMNS, isolation=self.isolation
        )
        for batch in batches:
            writer.write(batch)
        written = writer.close()
        return [] if written is None else [written]


class JudgedFiles(DataSource):
    """The format that a JSON batch is written with: good rows to one file, bad ones to another.

    The input has two struct columns, `good` (a row of the table) and `bad` (a row of the dead
    letter table, its reason null for a good record). Option `folder` says where the files go.
    """

    FORMAT = "chronik-judged-files"

    @classmethod
    def name(cls) -> str:
        return cls.FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return JudgedWriter(self.options["folder"])


@dataclass
class FilesMessage(WriterCommitMessage):
    """What one task wrote."""

    files: list[Written]


class JudgedWriter(DataSourceArrowWriter):
    """Both files of a task in one pass; the list of all files goes to the folder at the end."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[Any]) -> FilesMessage:
        good, bad = FileWriter(self._folder, "good"), FileWriter(self._folder, "bad")
        for batch in iterator:
            is_bad = batch.column("bad").field(dlq_table.REASON).is_valid()
            good.write(_flat(batch.filter(pc.invert(is_bad)), "good"))
            bad.write(_flat(batch.filter(is_bad), "bad"))
        files = [(good.close(), False), (bad.close(), True)]
        return FilesMessage([replace(one, bad=kind) for one, kind in files if one is not None])

    def commit(self, messages: list[Any]) -> None:
        # This runs in a process of Spark's, so the names reach the job through the folder.
        rows = [asdict(one) for message in messages if message for one in message.files]
        filesystem, path = pyarrow.fs.FileSystem.from_uri(f"{self._folder}/{LISTING}")
        filesystem.create_dir(os.path.dirname(path), recursive=True)
        with filesystem.open_output_stream(path) as stream:
            stream.write(json.dumps(rows).encode())

    def abort(self, messages: list[Any]) -> None:
        """Nothing: files without a commit are in no table, and maintenance deletes them."""


def listed(folder: str) -> list[Written]:
    """The files that a finished write left in the folder."""
    filesystem, path = pyarrow.fs.FileSystem.from_uri(f"{folder}/{LISTING}")
    with filesystem.open_input_stream(path) as stream:
        return [Written(**row) for row in json.loads(stream.read())]


def _flat(batch: Any, name: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(batch.column(name))
