"""The ledgers of one process in the order of its program: what the row before at the same key was.

The order of a process is known only where its file is read. So the reader adds to each row its
`line`; to what a consumer did at a key the number of the `stretch` (places changed so far); and to
each record and acked send the row before it at the same key (`before_*`). It also completes the
intents whose outcome was not written, as `audit.ledger.read_rows` does. All of it in whole batches.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from chronik.audit.ledger import RUNS, SCHEMA, TEXTS, logical, stored_batches
from chronik.audit.rows import NONE, Kind, Outcome, Row
from chronik.audit.sources import JSON_SUFFIXES
from chronik.audit.verifiable import read_verifiable
from chronik.audit_spark.intents import Intents
from chronik.audit_spark.sources import File, Unit

Array = Any
"""A numpy array."""
ADDED = (
    "line",
    "stretch",
    "before_line",
    "before_stretch",
    "before_offset",
    "before_poll",
    "before_sequence",
)
LINES_PER_FILE = 1 << 40
"""Lines of file n begin at n times this, so that a line names a row of any file."""
BATCH_ROWS = 65_536
_MOVES = (Kind.ASSIGN, Kind.SEEK, Kind.REVOKE)
_NUMBERS = ("partition", "offset", "sequence", "poll")


class Segment(NamedTuple):
    """Rows of a batch in which kind, process and topic stay the same."""

    low: int
    high: int
    kind: str
    process: str
    topic: str


class Stored:
    """A batch as a ledger keeps it; a column is decoded when it is asked for."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self.rows: int = batch.num_rows
        self._numbers: dict[str, Array] = {}
        self._runs: dict[str, tuple[list[int], list[str]]] = {}
        self._equals: dict[tuple[str, str], Array] = {}

    def column(self, name: str) -> Any:
        return logical(name, self._batch.column(name))

    def numbers(self, name: str) -> Array:
        if name not in self._numbers:
            self._numbers[name] = self.column(name).to_numpy()
        return self._numbers[name]

    def taken(self, name: str, index: Array) -> Any:
        """Some rows of a column; of runs no row is decoded."""
        if name in TEXTS or name in RUNS:
            column = self._batch.column(name)
            at: Array = np.searchsorted(column.run_ends.to_numpy(), index, side="right")
            return column.values.take(pa.array(at))
        return pa.array(self.numbers(name)[index])

    def runs(self, name: str) -> tuple[list[int], list[str]]:
        """Where each run of equal texts ends, and the texts."""
        if name not in self._runs:
            self._runs[name] = self._found_runs(name)
        return self._runs[name]

    def runs_within(self, name: str, low: int, high: int) -> Iterator[tuple[int, int, str]]:
        """The runs of a part of the rows: first row, end and text of each."""
        ends, texts = self.runs(name)
        at = bisect_right(ends, low)
        while low < high:
            end = min(ends[at], high)
            yield low, end, texts[at]
            low, at = end, at + 1

    def _found_runs(self, name: str) -> tuple[list[int], list[str]]:
        column = self._batch.column(name)
        return column.run_ends.to_pylist(), column.values.to_pylist()

    def equals(self, name: str, text: str) -> Array:
        if (name, text) not in self._equals:
            ends, texts = self.runs(name)
            same = np.array([found == text for found in texts], bool)
            self._equals[name, text] = np.repeat(same, np.diff([0, *ends]))
        return self._equals[name, text]


class Plain(Stored):
    """A batch in the logical schema."""

    def column(self, name: str) -> Any:
        return self._batch.column(name)

    def taken(self, name: str, index: Array) -> Any:
        return self.column(name).take(pa.array(index))

    def _found_runs(self, name: str) -> tuple[list[int], list[str]]:
        texts = self._batch.column(name).to_pylist()
        ends = [n for n in range(1, self.rows) if texts[n] != texts[n - 1]] + [self.rows]
        return ends, [texts[end - 1] for end in ends]


class Ordered(NamedTuple):
    """A batch, its segments, and the columns that its place in the file gives it."""

    batch: Stored
    segments: list[Segment]
    added: dict[str, Array]

    def numbers(self, name: str) -> Array:
        return self.added[name] if name in self.added else self.batch.numbers(name)


def read_ordered(unit: Unit) -> Iterator[Ordered]:
    """The batches of ledgers of one process; after the last file its sends of unknown end."""
    order = _Order()
    for number, name in unit:
        order.begin(number * LINES_PER_FILE)
        for batch in _batches(Path(name)):
            if batch.rows:
                yield order.follow(batch)
        order.intents.end_file()
    for table in order.intents.unresolved():
        for part in table.to_batches(BATCH_ROWS):
            yield order.follow(Plain(part))


def units_of(files: Sequence[Path]) -> list[list[File]]:
    """The files, those of one process together: its later files go on where the first ended."""
    units: dict[str, list[File]] = {}
    for number, path in enumerate(files):
        first = next((batch for batch in _batches(path) if batch.rows), None)
        process = first.runs("process")[1][0] if first else path.name
        units.setdefault(process, []).append((number, str(path)))
    return list(units.values())


def _batches(path: Path) -> Iterator[Stored]:
    if path.suffix not in JSON_SUFFIXES:
        yield from map(Stored, stored_batches(path))
        return
    columns = list(zip(*read_verifiable(path), strict=True)) or [()] * len(Row._fields)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    yield from map(Plain, pa.Table.from_arrays(arrays, schema=SCHEMA).to_batches(BATCH_ROWS))


class _Place:
    """The last row at a key of one process."""

    __slots__ = ("line", "moves", "offset", "poll", "sequence", "stretch")

    def __init__(self) -> None:
        self.moves = 0
        self.line = self.stretch = self.offset = self.poll = self.sequence = NONE


class _Order:
    """Goes through the files of a process and keeps what the next batch needs."""

    def __init__(self) -> None:
        self._line = 0
        self._places: dict[tuple[str, str, int], _Place] = {}
        self.intents = Intents()

    def begin(self, first_line: int) -> None:
        """A file of its own lines; places and open intents go on."""
        self._line = first_line

    def follow(self, batch: Stored) -> Ordered:
        added = {name: np.full(batch.rows, NONE, np.int64) for name in ADDED}
        added["line"] = np.arange(self._line, self._line + batch.rows)
        self._line += batch.rows
        segments = list(_segments(batch))
        for segment in segments:
            part = slice(segment.low, segment.high)
            rows = {name: batch.numbers(name)[part] for name in _NUMBERS}
            own = {name: column[part] for name, column in added.items()}
            self._follow(batch, segment, rows, own)
        return Ordered(batch, [one for one in segments if one.kind != Kind.INTENT], added)

    def _follow(
        self, batch: Stored, segment: Segment, rows: dict[str, Array], own: dict[str, Array]
    ) -> None:
        if segment.kind == Kind.RECORD:
            self._records(segment, rows, own)
        elif segment.kind in _MOVES:
            self._moves(segment, rows, own)
        elif segment.kind == Kind.SEND:
            self.intents.ended(segment.process, rows["sequence"])
            ok = batch.equals("outcome", Outcome.OK)[segment.low : segment.high]
            self._sends(segment, rows, own, ok & (rows["offset"] >= 0))
        elif segment.kind == Kind.INTENT:
            self.intents.begun(batch, segment.low, segment.high)

    def _records(self, segment: Segment, rows: dict[str, Array], own: dict[str, Array]) -> None:
        for index, place in self._at_places(segment, rows["partition"]):
            lines, offsets, polls = own["line"][index], rows["offset"][index], rows["poll"][index]
            own["stretch"][index] = place.moves
            own["before_line"][index] = _shifted(lines, place.line)
            own["before_offset"][index] = _shifted(offsets, place.offset)
            own["before_poll"][index] = _shifted(polls, place.poll)
            stretches = np.full(len(lines), place.moves, np.int64)
            own["before_stretch"][index] = _shifted(stretches, place.stretch)
            place.line, place.offset = int(lines[-1]), int(offsets[-1])
            place.poll, place.stretch = int(polls[-1]), place.moves

    def _moves(self, segment: Segment, rows: dict[str, Array], own: dict[str, Array]) -> None:
        for at, partition in enumerate(rows["partition"].tolist()):
            place = self._place(segment, partition)
            place.moves += 1
            own["stretch"][at] = place.moves

    def _sends(
        self, segment: Segment, rows: dict[str, Array], own: dict[str, Array], ok: Array
    ) -> None:
        """Acked sends: the highest sequence so far, and the offset of the row before."""
        for index, place in self._at_places(segment, rows["partition"]):
            kept = index if ok.all() else _only(index, ok)
            sequences, offsets = rows["sequence"][kept], rows["offset"][kept]
            if not len(sequences):
                continue
            highest = np.maximum(np.maximum.accumulate(sequences), place.sequence)
            own["before_sequence"][kept] = _shifted(highest, place.sequence)
            own["before_offset"][kept] = _shifted(offsets, place.offset)
            place.sequence, place.offset = int(highest[-1]), int(offsets[-1])

    def _at_places(self, segment: Segment, partitions: Array) -> Iterator[tuple[Any, _Place]]:
        found = distinct(partitions)
        for partition in found.tolist():
            index = slice(None) if len(found) == 1 else np.flatnonzero(partitions == partition)
            yield index, self._place(segment, partition)

    def _place(self, segment: Segment, partition: int) -> _Place:
        return self._places.setdefault((segment.process, segment.topic, partition), _Place())


def _segments(batch: Stored) -> Iterator[Segment]:
    runs = [batch.runs(name) for name in ("kind", "process", "topic")]
    at = [0, 0, 0]
    low = 0
    while low < batch.rows:
        high = min(runs[n][0][at[n]] for n in range(3))
        kind, process, topic = (runs[n][1][at[n]] for n in range(3))
        yield Segment(low, high, kind, process, topic)
        at = [at[n] + (runs[n][0][at[n]] == high) for n in range(3)]
        low = high


def distinct(values: Array) -> Array:
    """The distinct values of a short range of numbers, without a sort."""
    low, high = int(values.min()), int(values.max())
    if high - low > 1 << 16:
        return np.unique(values)
    return np.flatnonzero(np.bincount(values - low)) + low


def _shifted(values: Array, first: int) -> Array:
    shifted = np.empty(len(values), np.int64)
    shifted[0] = first
    shifted[1:] = values[:-1]
    return shifted


def _only(index: Any, chosen: Array) -> Array:
    return np.flatnonzero(chosen) if isinstance(index, slice) else index[chosen[index]]
