"""Parquet files: complete and synced on disk, and in no table until a commit names them."""

import os
import uuid
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chronik.pipeline.partitioning import Key, PartitionBy, pieces
from chronik.pipeline.places import Access, is_remote, located

ROW_GROUP_ROWS = 262_144
OPEN_FILES_MAX = 64
"""A backfill may touch many partitions in any order; the memory of a task stays bounded."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is complete on disk and in no table yet."""

    path: str
    rows: int
    bad: bool = False
    partition: Key = ()


class FileWriter:
    """One parquet file, opened with the first rows; without rows there is no file."""

    def __init__(self, folder: str, name: str, access: Access | None = None) -> None:
        # The name is new at every attempt: what a killed attempt left is never taken for data.
        self.path = f"{folder}/{name}-{uuid.uuid4().hex}.parquet"
        self.rows = 0
        self._access = access or {}
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
        filesystem, path = located(self.path, self._access)
        if not is_remote(self.path):  # a store has no folders, only names
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


class TableWriter:
    """The rows of one task: a file for each partition of the table, and for each schema."""

    def __init__(
        self,
        folder: str,
        name: str,
        by: tuple[PartitionBy, ...] = (),
        access: Access | None = None,
    ) -> None:
        self._folder, self._name, self._by, self._access = folder, name, by, access
        self._open: dict[Key, FileWriter] = {}
        self._schema: pa.Schema | None = None
        self._written: list[Written] = []

    def write(self, batch: pa.RecordBatch, source: pa.RecordBatch) -> None:
        """Rows of the table, and the records that they were made of, in the same order."""
        if self._schema is not None and batch.schema != self._schema:
            self._close_all()
        self._schema = batch.schema
        keys = [one.values(source.column(one.column)) for one in self._by]
        for key, rows in pieces(batch, keys):
            self._writer(key).write(rows)

    def close(self) -> list[Written]:
        self._close_all()
        return self._written

    def _writer(self, key: Key) -> FileWriter:
        if key not in self._open:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close(next(iter(self._open)))
            self._open[key] = FileWriter(self._folder, self._name, self._access)
        return self._open[key]

    def _close_all(self) -> None:
        for key in list(self._open):
            self._close(key)

    def _close(self, key: Key) -> None:
        written = self._open.pop(key).close()
        if written is not None:
            self._written.append(replace(written, partition=key))
