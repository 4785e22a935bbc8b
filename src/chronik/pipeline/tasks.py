"""The work of one task: the records of a range in, parquet files out, only numbers to the driver.

What the records become is the mode's: see `raw_table`, `json_table`, `avro_table`. A task counts
what it reads apart from what it writes, and the driver refuses to commit where the two differ.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute

from chronik.pipeline import dlq_table
from chronik.pipeline.fetch import OffsetRange, read_range
from chronik.pipeline.files import TableWriter, Written
from chronik.pipeline.partitioning import PartitionBy
from chronik.pipeline.places import Access
from chronik.pipeline.warehouse import BAD_ROWS, GAPS, ROWS

pc: Any = pyarrow.compute


class WrongCount(Exception):  # noqa: N818
    """Rows and offsets do not agree; such a batch is not committed."""


class Shape(Protocol):
    """How a mode makes rows of records, within one task."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What it needs of the source."""
        ...

    @property
    def new(self) -> Mapping[str, pa.DataType]:
        """Columns that the table does not have yet."""
        ...

    @property
    def widened(self) -> bool:
        """True where rows were handed out whose types turned out too narrow."""
        ...

    def rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """As many rows as records, and the reason for each that is bad; None: all are good."""
        ...


class Mode(Protocol):
    """What travels to the executors: makes the `Shape` of one task there."""

    def shape(self) -> Shape: ...


@dataclass(frozen=True)
class Outcome:
    """What one task did with its range."""

    range: OffsetRange
    read: int
    files: tuple[Written, ...] = ()
    new: Mapping[str, pa.DataType] = field(default_factory=dict)
    widened: bool = False

    def rows(self, *, bad: bool) -> int:
        return sum(one.rows for one in self.files if one.bad is bad)

    @property
    def gaps(self) -> int:
        """Offsets without a record: markers, aborted records, what compaction took."""
        return self.range.end - self.range.start - self.read


@dataclass(frozen=True, slots=True)
class Task:
    """Reads a range and writes its rows; the records never leave this process."""

    bootstrap: str
    folder: str
    isolation: int
    mode: Mode
    partition_by: tuple[PartitionBy, ...] = ()
    bad_folder: str = ""
    """Of the dead letters, where that is another."""
    access: Access = field(default_factory=dict, repr=False)
    """How the store of the folders is reached."""

    def __call__(self, wanted: OffsetRange) -> Outcome:
        shape = self.mode.shape()
        name = f"{wanted.partition:05d}-{wanted.start:020d}"
        good = TableWriter(self.folder, name, self.partition_by, self.access)
        bad = TableWriter(self.bad_folder or self.folder, f"bad-{name}", (), self.access)
        offsets = Offsets(wanted)
        for batch in read_range(
            self.bootstrap, wanted, columns=shape.columns, isolation=self.isolation
        ):
            offsets.take(batch)
            rows, reasons = shape.rows(batch)
            if reasons is None or reasons.null_count == len(reasons):
                good.write(rows, batch)
                continue
            fine = reasons.is_null()
            good.write(rows.filter(fine), batch.filter(fine))
            letters = dlq_table.letters(batch, reasons)
            bad.write(letters, letters)
        files = [*good.close(), *(replace(one, bad=True) for one in bad.close())]
        return Outcome(wanted, offsets.count, tuple(files), dict(shape.new), shape.widened)


class Offsets:
    """Counts what was read, and sees that it ascends inside the range: nothing comes twice."""

    def __init__(self, wanted: OffsetRange) -> None:
        self._range = wanted
        self._last = wanted.start - 1
        self.count = 0

    def take(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        offsets = batch.column("offset").to_numpy()
        ascending = offsets[0] > self._last and (offsets[1:] > offsets[:-1]).all()
        if not ascending or offsets[-1] >= self._range.end:
            raise WrongCount(
                f"{self._range}: offsets {offsets[0]} to {offsets[-1]} after {self._last}"
            )
        self._last = int(offsets[-1])
        self.count += len(offsets)


@dataclass(frozen=True)
class Counts:
    """One commit in numbers; they are in the snapshot too."""

    rows: int
    bad: int
    gaps: int

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Counts":
        known = list(outcomes)
        rows, bad = (sum(one.rows(bad=kind) for one in known) for kind in (False, True))
        return cls(rows, bad, sum(one.gaps for one in known))

    def told(self) -> dict[str, str]:
        """As properties of the snapshot."""
        return {ROWS: str(self.rows), BAD_ROWS: str(self.bad), GAPS: str(self.gaps)}


def check_counts(ranges: list[OffsetRange], outcomes: list[Outcome]) -> None:
    """Every offset of the ranges was read by one task, and every record was written once."""
    wanted = {one.partition: (one.start, one.end) for one in ranges if one.end > one.start}
    reached = {partition: start for partition, (start, _) in wanted.items()}
    for one in sorted(outcomes, key=lambda one: (one.range.partition, one.range.start)):
        place = one.range
        if reached.get(place.partition) != place.start:
            raise WrongCount(f"{place} does not begin at {reached.get(place.partition)}")
        reached[place.partition] = place.end
        written = one.rows(bad=False) + one.rows(bad=True)
        if written != one.read or one.gaps < 0:
            raise WrongCount(f"{place}: {one.read} records were read, {written} rows written")
    if reached != {partition: end for partition, (_, end) in wanted.items()}:
        raise WrongCount(f"the tasks ended at offsets {reached} of {wanted}")
