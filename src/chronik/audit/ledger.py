"""Ledgers on disk: Arrow IPC streams in small flushed batches, readable after kill -9.

A producer's intents are written ahead as ranges, so no send can be unknown to the ledger; its
outcomes are buffered in columns and written in batches of one kind. What a crash takes is outcomes
of the last moments, and an intent without an outcome reads as *info*. The wide numbers are stored
as differences to the row before (the first row of a batch is absolute), what rarely changes as
runs, and all of it compressed with LZ4: 12 bytes and 0.1 microseconds per send.
"""

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
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
"""Outcomes wait at most this long in memory while the process is alive."""
INTENT_RANGE = 16_384
FILE_BUFFER_BYTES = 4 * 1024 * 1024
"""One batch fits, so that it goes to the operating system in one piece."""

TEXTS = ("kind", "process", "topic", "sender", "outcome", "detail", "run")
RUNS = ("key", "poll", "position", "epoch", "generation", "transaction", "records")
DELTAS = ("begin_ns", "end_ns", "offset", "sequence")
NO_CHECKSUM = 0xFFFF_FFFF

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
        options = pa.ipc.IpcWriteOptions(compression="lz4")
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


class _Block:
    """What was known at the beginning of the sends of one intent range."""

    __slots__ = ("begins", "checksums", "first", "keys", "outstanding", "transactions")

    def __init__(self, first: int) -> None:
        self.first = first
        self.begins, self.checksums, self.keys = array("q"), array("q"), array("q")
        self.transactions = array("q")
        self.outstanding = 0

    def add(
        self, begin_ns: int, checksums: Sequence[int], keys: Sequence[int], transaction: int
    ) -> None:
        count = len(checksums)
        self.begins += array("q", (begin_ns,)) * count
        self.checksums += array("q", checksums)
        self.keys += array("q", keys) if keys else array("q", (NONE,)) * count
        self.transactions += array("q", (transaction,)) * count
        self.outstanding += count

    def take(self, sequences: Any) -> Columns:
        """The columns of some of its sends, which have ended now."""
        self.outstanding -= len(sequences)
        index = pc.subtract(sequences, self.first)
        columns = {
            "begin_ns": self.begins,
            "checksum": self.checksums,
            "key": self.keys,
            "transaction": self.transactions,
        }
        return {name: _view(values).take(index) for name, values in columns.items()}

    def take_one(self, sequence: int) -> dict[str, Any]:
        self.outstanding -= 1
        at = sequence - self.first
        return {
            "begin_ns": self.begins[at],
            "checksum": self.checksums[at],
            "key": self.keys[at],
            "transaction": self.transactions[at],
        }


class SendLog:
    """The fast path of a producer: outcomes in bulk, intents as ranges written ahead.

    `begin` before records are handed to the client, `acked`/`ended` when their outcome is known.
    Between them a send costs no Python object but its numbers.
    """

    def __init__(self, ledger: LedgerWriter, topic: str, sequences_max: int = 1 << 62) -> None:
        self._ledger, self._topic, self._limit = ledger, topic, sequences_max
        self._next = 0
        self._blocks: dict[int, _Block] = {}
        self._flushed_ns = ledger.now_ns()
        self._new_columns()

    def begin(
        self,
        first: int,
        checksums: Sequence[int],
        keys: Sequence[int] = (),
        transaction: int = NONE,
    ) -> None:
        """Sends `first`, `first + 1`, ... begin now: at most up to the next `INTENT_RANGE`."""
        block = self._blocks.get(first // INTENT_RANGE) or self._intend(first)
        assert first == block.first + len(block.begins), "sequences ascend without holes"
        assert len(block.begins) + len(checksums) <= INTENT_RANGE, "a range ends at its boundary"
        block.add(self._ledger.now_ns(), checksums, keys, transaction)
        self._next = first + len(checksums)

    def acked(
        self, sequences: Sequence[int], partitions: Sequence[int], offsets: Sequence[int]
    ) -> None:
        """Acknowledgements that were seen just now (a later time than the true one is safe)."""
        end_ns = self._ledger.now_ns()
        self._sequences += array("q", sequences)
        self._partitions += array("q", partitions)
        self._offsets += array("q", offsets)
        self._ends += array("q", (end_ns,)) * len(sequences)
        if len(self._ends) >= BATCH_ROWS_MAX or end_ns - self._flushed_ns > FLUSH_NS_MAX:
            self.flush()

    def ended(self, sequence: int, outcome: Outcome, detail: str, partition: int = NONE) -> None:
        """A send without a known offset: it failed, or nobody knows."""
        number = sequence // INTENT_RANGE
        begun = self._blocks[number].take_one(sequence)
        self._forget(number)
        row = Row(
            Kind.SEND,
            end_ns=self._ledger.now_ns(),
            topic=self._topic,
            partition=partition,
            sequence=sequence,
            outcome=outcome,
            detail=detail,
        )
        self._ledger.append(row._replace(**begun))

    def flush(self) -> None:
        self._flushed_ns = self._ledger.now_ns()
        sequences = _view(self._sequences)
        shared = {"kind": Kind.SEND, "topic": self._topic, "outcome": Outcome.OK}
        ended = {
            "sequence": sequences,
            "partition": _view(self._partitions),
            "offset": _view(self._offsets),
            "end_ns": _view(self._ends),
        }
        numbers = pc.divide(sequences, INTENT_RANGE)
        for number in pc.unique(numbers).to_pylist():
            chosen = pc.equal(numbers, number)
            columns = {name: column.filter(chosen) for name, column in ended.items()}
            begun = self._blocks[number].take(columns["sequence"])
            self._forget(number)
            self._ledger.write(len(columns["sequence"]), shared | columns | begun)
        self._new_columns()
        self._ledger.flush()

    def close(self) -> None:
        """Says that no later send was begun; without it the rest of the last range is info."""
        self.flush()
        begin_ns = self._ledger.now_ns()
        end = Row(Kind.INTENT, begin_ns=begin_ns, topic=self._topic, sequence=self._next, records=0)
        self._ledger.append(end)
        self._ledger.flush()

    def transaction(self, number: int, begin_ns: int, outcome: Outcome, detail: str = "") -> None:
        """How a transaction ended; one without this row is of unknown end."""
        end_ns = self._ledger.now_ns()
        row = Row(Kind.TRANSACTION, "", begin_ns, end_ns, outcome=outcome, detail=detail)
        self._ledger.append(row._replace(transaction=number))

    def rotate(self, path: Path) -> None:
        """Ends the ledger's file; in the next one the sends that follow are intended anew."""
        self.close()
        self._ledger.rotate(path)
        self._blocks = {
            number: block for number, block in self._blocks.items() if block.outstanding
        }
        if self._next // INTENT_RANGE in self._blocks:  # one of its range has no outcome yet
            self._write_intent(self._next)

    def _intend(self, first: int) -> _Block:
        block = self._blocks[first // INTENT_RANGE] = _Block(first)
        self._write_intent(first)
        return block

    def _write_intent(self, first: int) -> None:
        count = min(INTENT_RANGE - first % INTENT_RANGE, self._limit - first)
        begin_ns = self._ledger.now_ns()
        self._ledger.append(
            Row(Kind.INTENT, begin_ns=begin_ns, topic=self._topic, sequence=first, records=count)
        )
        self._ledger.flush()

    def _forget(self, number: int) -> None:
        block = self._blocks[number]
        complete = block.first % INTENT_RANGE + len(block.begins) == INTENT_RANGE
        if complete and not block.outstanding:
            del self._blocks[number]

    def _new_columns(self) -> None:
        self._sequences, self._partitions = array("q"), array("q")
        self._offsets, self._ends = array("q"), array("q")


def read_table(path: Path) -> Any:
    """One ledger as an Arrow table in `SCHEMA`; a torn last batch is left out."""
    batches = [_decoded(batch) for batch in _stored_batches(path)]
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


def _view(values: "array[int]") -> Any:
    """An Arrow array over the same memory."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _stored(name: str, values: Any, rows: int) -> Any:
    """One column of a batch as it is kept."""
    if isinstance(values, int | str) and (name in TEXTS or name in RUNS):
        return _one_run(values, rows)
    if isinstance(values, int):
        values = _view(array("q", (values,)) * rows)
    if name in TEXTS or name in RUNS:
        return pc.run_end_encode(pa.array(values, SCHEMA.field(name).type))
    column = values if isinstance(values, pa.Array) else pa.array(values, pa.int64())
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


def _stored_batches(path: Path) -> Iterator[Any]:
    if path.stat().st_size == 0:
        return
    with pa.memory_map(str(path)) as source:
        try:
            with pa.ipc.open_stream(source) as stream:
                yield from stream
        except (pa.ArrowInvalid, OSError):
            return  # the writer was killed in the middle of its last batch


def _decoded(batch: Any) -> Any:
    arrays = [_logical(name, batch.column(name)) for name in Row._fields]
    return pa.record_batch(arrays, schema=SCHEMA)


def _logical(name: str, column: Any) -> Any:
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
