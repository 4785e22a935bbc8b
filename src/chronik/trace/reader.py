"""Trace files back as Arrow: a table, or batch by batch. A torn tail ends its file and is reported.

Each kill -9 leaves one file without an end mark, and perhaps half a batch: all whole ones count.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from chronik.trace.events import TraceEvent
from chronik.trace.files import trace_files
from chronik.trace.schema import arrow_schema, check_version

OnTorn = Callable[[Path, str], None]


def _ignore(path: Path, reason: str) -> None:
    """The default for a caller to whom a torn tail is no news."""


def read_file(path: Path, on_torn: OnTorn = _ignore) -> Iterator[pa.RecordBatch]:
    """The whole batches of one file, in the order they were written."""
    try:
        with pa.OSFile(str(path), "rb") as source:
            # A file without a whole schema was killed right after its creation.
            stream = pa.ipc.open_stream(source)
            check_version(stream.schema)
            yield from stream
    except (pa.ArrowException, OSError) as error:
        on_torn(path, str(error))


def read_batches(
    directory: Path, node: int | None = None, on_torn: OnTorn = _ignore
) -> Iterator[pa.RecordBatch]:
    """The batches of every file of a directory, one file open at a time."""
    for path in trace_files(directory, node):
        yield from read_file(path, on_torn)


def read_table(directory: Path, node: int | None = None, on_torn: OnTorn = _ignore) -> pa.Table:
    """The whole directory in memory, with the one schema even when there are no files."""
    return pa.Table.from_batches(read_batches(directory, node, on_torn), schema=arrow_schema())


def events(batch: pa.RecordBatch | pa.Table) -> list[TraceEvent]:
    """The rows as Python values: for tests and small tables."""
    columns = [column.to_pylist() for column in batch.columns]
    return [TraceEvent._make(row) for row in zip(*columns, strict=True)]
