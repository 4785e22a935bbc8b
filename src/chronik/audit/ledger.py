"""Ledgers on disk: Arrow IPC streams in small flushed batches, readable after kill -9.

A producer's intents are written ahead as ranges, so no send can be unknown to the ledger; its
outcomes are buffered in columns and written in batches of one kind. What a crash takes is outcomes
of the last moments, and an intent without an outcome reads as *info*. The wide numbers are stored
as differences to the row before (the first row of a batch is absolute), what rarely changes as
runs, and all of it compressed with LZ4: 5 to 8 bytes and 0.1 microseconds per send.
"""

import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute

from chronik.audit.rows import NONE, Kind, Outcome, Row

pc: Any = pyarrow.compute
"""Its functions are made at run time; the type stubs do not know them all."""
SUFFIX = ".ledger"
BATCH_ROWS_MAX = 16_384
FLUSH_NS_MAX = 200_000_000
"""Outcomes and reads wait at most this long in memory while the process is alive."""
FILE_BUFFER_BYTES = 4 * 1024 * 1024
"""One batch fits, so that it goes to the operating system in one piece."""

TEXTS = ("kind", "process", "topic", "sender", "outcome", "detail", "run")
RUNS = ("key", "poll", "position", "epoch", "generation", "transaction", "records")
DELTAS = ("begin_ns", "end_ns", "offset", "sequence")
NO_CHECKSUM = 0xFFFF_FFFF


class LedgerError(Exception):
    """A file that is no ledger, or a line that says what no line can say."""


SCHEMA = pa.schema([(name, pa.string() if name in TEXTS else pa.int64()) for name in Row._fields])
"""The one schema of every send and poll, as readers see it."""


def _stored_type(name: str) -> Any:
    if name in TEXTS:
        return pa.run_end_encoded(pa.int32(), pa.string())
    if name in RUNS:
        return pa.run_end_encoded(pa.int32(), pa.int64())
    return {"partition": pa.int32(), "checksum": pa.uint32()}.get(name, pa.int64())


STORED = pa.schema([(name, _stored_type(name)) for name in Row._fields])
"""The same columns in a file: what rarely changes as runs, wide numbers as differences."""

Columns = dict[str, Any]
"""Column name to a list of values, or to one value that all rows share."""


class LedgerWriter:
    """One process's append-only ledger. Not thread safe: one writer belongs to one thread."""

    def __init__(
        self, path: Path, run: str, process: str, *, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.run, self.process, self.now_ns = run, process, now_ns
        self._rows: list[Row] = []
        self._open(path)

    def _open(self, path: Path) -> None:
        path.touch(exist_ok=False)
        self._file = pa.output_stream(str(path), buffer_size=FILE_BUFFER_BYTES)
        # One thread: handing small columns to others takes longer than compressing them.
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        self._stream = pa.ipc.new_stream(self._file, STORED, options=options)

    def rotate(self, path: Path) -> None:
        """Ends the file and goes on in the next one."""
        self.close()
        self._open(path)

    def append(self, row: Row) -> None:
        """One row of any kind; written with the next flush, after what was written before it."""
        self._rows.append(row._replace(run=self.run, process=row.process or self.process))
        if len(self._rows) >= BATCH_ROWS_MAX:
            self.flush()

    def note(self, kind: Kind, detail: str, topic: str = "") -> None:
        """A row that is written at once: settings, faults."""
        self.append(Row(kind, begin_ns=self.now_ns(), topic=topic, detail=detail))
        self.flush()

    def flush(self) -> None:
        """Hands everything to the operating system: it survives this process, not the machine."""
        if self._rows:
            rows, self._rows = self._rows, []
            columns = dict(zip(Row._fields, map(list, zip(*rows, strict=True)), strict=True))
            self.write(len(rows), columns)

    def write(self, rows: int, columns: Columns) -> None:
        """One batch, at once. A column that is not named is absent in all its rows."""
        shared = (
            Row(columns.get("kind", ""), process=self.process, run=self.run)._asdict() | columns
        )
        arrays = [_stored(name, shared[name], rows) for name in Row._fields]
        self._stream.write_batch(pa.record_batch(arrays, schema=STORED))
        self._file.flush()

    def close(self) -> None:
        self.flush()
        self._stream.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def read_table(path: Path) -> Any:
    """One ledger as an Arrow table in `SCHEMA`; a torn last batch is left out."""
    batches = [_decoded(batch) for batch in stored_batches(path)]
    return pa.Table.from_batches(batches, schema=SCHEMA)


def read_rows(paths: Iterable[Path]) -> list[Row]:
    """All rows of the ledgers, each ledger in the order of its writing.

    An intent whose outcome was not written becomes one *info* send per sequence.
    """
    rows: list[Row] = []
    for path in paths:
        rows.extend(resolve_intents(_rows_of(read_table(path))))
    return rows


def ledger_files(paths: Iterable[Path]) -> list[Path]:
    """The ledgers named, and those inside the directories named."""
    found: list[Path] = []
    for path in paths:
        found.extend(sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path])
    return found


def check_ledger(path: Path) -> None:
    """Raises for what was never a ledger; one whose writer was killed is one."""
    if path.stat().st_size == 0:
        return  # killed before its first row
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            names = stream.schema.names
    except (pa.ArrowInvalid, OSError) as error:
        raise LedgerError(f"{path} is no ledger: {str(error).splitlines()[0]}") from error
    if names != list(Row._fields):
        raise LedgerError(f"{path} is an Arrow file, but no ledger: it has {', '.join(names[:5])}")


def resolve_intents(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows without intents, then the sends that nobody knows the end of."""
    intents: list[Row] = []
    ended: set[tuple[str, int]] = set()
    for row in rows:
        if row.kind == Kind.INTENT:
            intents.append(row)
            continue
        if row.kind == Kind.SEND:
            ended.add((row.process, row.sequence))
        yield row
    ends = {intent.process: intent.sequence for intent in intents if intent.records == 0}
    for intent in intents:
        last = intent.sequence + intent.records
        for sequence in range(intent.sequence, min(last, ends.get(intent.process, last))):
            if (intent.process, sequence) not in ended:
                yield intent._replace(
                    kind=Kind.SEND,
                    sequence=sequence,
                    outcome=Outcome.INFO,
                    detail="intent",
                    records=NONE,
                )


def export_parquet(paths: Iterable[Path], target: Path) -> int:
    """All rows as one Parquet file, for engines that read no Arrow streams; returns their count."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - half a second that no other use needs

    count = 0
    with pq.ParquetWriter(target, SCHEMA, compression="zstd") as writer:
        for path in paths:
            table = read_table(path)
            count += table.num_rows
            writer.write_table(table)
    return count


_ARROW_TYPES = {"q": pa.int64(), "i": pa.int32(), "I": pa.uint32()}


def joined(pieces: "list[array[int]]") -> Any:
    """An Arrow array of what the pieces hold, in order; they become one piece that it shares."""
    if len(pieces) > 1:
        pieces[:] = [array(pieces[0].typecode, b"".join(pieces))]
    (values,) = pieces
    kind = _ARROW_TYPES[values.typecode]
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def repeated(value: int, times: int) -> "array[int]":
    return array("q", (value,)) * times


def _stored(name: str, values: Any, rows: int) -> Any:
    """One column of a batch as it is kept."""
    if isinstance(values, int | str) and (name in TEXTS or name in RUNS):
        return _one_run(values, rows)
    if isinstance(values, int):
        values = joined([repeated(values, rows)])
    if name in TEXTS or name in RUNS:
        return pc.run_end_encode(pa.array(values, SCHEMA.field(name).type))
    column = values if isinstance(values, pa.Array) else pa.array(values, pa.int64())
    if name in ("partition", "checksum") and column.type == STORED.field(name).type:
        return column
    if name in DELTAS:
        return _differences(column)
    return _narrow(name, column)


@lru_cache(maxsize=1_024)
def _single(value: int | str) -> Any:
    """An array of one value. Kept: `pa.array` looks for pandas on disk each time it is called."""
    return pa.array([value], pa.string() if isinstance(value, str) else pa.int64())


def _one_run(value: int | str, rows: int) -> Any:
    ends = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(array("i", (rows,)))])
    kept = _single(value)
    kind = pa.run_end_encoded(pa.int32(), kept.type)
    return pa.Array.from_buffers(kind, rows, [None], children=[ends, kept])


def _narrow(name: str, column: Any) -> Any:
    if name == "checksum":
        absent = pc.equal(column, NONE)
        column = pc.if_else(absent, pa.scalar(NO_CHECKSUM, pa.int64()), column)
    return column.cast(STORED.field(name).type)


def _differences(values: Any) -> Any:
    if len(values) < 2:
        return values
    return pa.concat_arrays([values[:1], pc.subtract(values[1:], values[:-1])])


def stored_batches(path: Path) -> Iterator[Any]:
    """The whole batches of a file as they are kept: `logical` decodes a column of them."""
    if path.stat().st_size == 0:
        return
    with pa.memory_map(str(path)) as source:
        try:
            # One thread: a batch is too small to divide.
            options = pa.ipc.IpcReadOptions(use_threads=False)
            with pa.ipc.open_stream(source, options=options) as stream:
                yield from stream
        except (pa.ArrowInvalid, OSError):
            return  # the writer was killed in the middle of its last batch


def _decoded(batch: Any) -> Any:
    arrays = [logical(name, batch.column(name)) for name in Row._fields]
    return pa.record_batch(arrays, schema=SCHEMA)


def logical(name: str, column: Any) -> Any:
    """A stored column as readers see it."""
    if name in TEXTS or name in RUNS:
        return pc.run_end_decode(column)
    if name in DELTAS:
        return pc.cumulative_sum(column)
    column = column.cast(pa.int64())
    if name == "checksum":
        column = pc.if_else(pc.equal(column, NO_CHECKSUM), pa.scalar(NONE, pa.int64()), column)
    return column


def _rows_of(table: Any) -> Iterator[Row]:
    for batch in table.to_batches(max_chunksize=65_536):
        columns = [batch.column(name).to_pylist() for name in Row._fields]
        yield from map(Row._make, zip(*columns, strict=True))
