"""One pass over all ledgers: blocks added up, the rows that are few, and a sample of the others.

A pass decodes every file, so what can be had in one is. Each task adds up the blocks of its process
itself; what goes to the driver is a row per block, not the 150 bytes of each event.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from chronik.audit_spark import blocks as summed
from chronik.audit_spark import fold, sample
from chronik.audit_spark.blocks import Blocks
from chronik.audit_spark.ledgers import EVENTS, rows_at
from chronik.audit_spark.notes import Notes
from chronik.audit_spark.order import Ordered, read_ordered
from chronik.audit_spark.sources import Unit, bytes_of, gathered, record_batch
from chronik.audit_spark.wanted import Wanted

SAMPLE_VALUES = 50_000
"""At least about so many values give the latencies and curves of a large ledger."""
EVENT_BYTES = 12
"""An event takes at most so much on disk: with fewer bytes more values are taken."""
NOTES_MAX = 500_000
"""Rows of the kinds that are few, of one task: with more no block is screened."""
SAMPLE = pa.schema([EVENTS.field(name) for name in sample.COLUMNS])
SCHEMAS = {"blocks": summed.SCHEMA, "notes": EVENTS, "sample": SAMPLE}
_PARTS = 4_096
"""Parts of so many batches are merged together."""


class Survey(NamedTuple):
    """What one pass finds."""

    blocks: Blocks
    notes: Notes
    sample: pa.Table
    step: int
    """Every so many-th sequence is in the sample."""


def survey(spark: SparkSession | None, units: Sequence[Unit], block_size: int) -> Survey | None:
    """None where blocks or notes are too many for the driver."""
    step = sample_step(units)

    def gather(unit: Unit) -> list[tuple[str, pa.Table]]:
        return read_parts(unit, block_size, step)

    found = gathered(spark, units, SCHEMAS, gather)
    if found is None or found["blocks"].num_rows > summed.BLOCKS_MAX:
        return None
    blocks = Blocks(summed.merged(found["blocks"]), block_size)
    return Survey(blocks, Notes(found["notes"]), found["sample"], step)


def sample_step(units: Sequence[Unit]) -> int:
    """By the size of the files, because their events are counted only in the pass itself."""
    return max(1, bytes_of(units) // EVENT_BYTES // 2 // SAMPLE_VALUES)


def read_parts(unit: Unit, block_size: int, step: int) -> list[tuple[str, pa.Table]]:
    """The tables of one process; nothing if they are too large."""
    parts, notes = _Parts(), _Events(Wanted(everything=False))
    values = _Events(Wanted(everything=False, notes=False, sample_step=step), SAMPLE)
    for found in read_ordered(unit):
        parts.extend(fold.fold(found, block_size))
        notes.add(found)
        values.add(found)
        if parts.rows > summed.BLOCKS_MAX or notes.rows > NOTES_MAX:
            return []
    return [("blocks", parts.table()), ("notes", notes.table()), ("sample", values.table())]


class _Parts:
    """Parts of blocks, merged from time to time."""

    def __init__(self) -> None:
        self._merged = summed.SCHEMA.empty_table()
        self._new: list[pa.RecordBatch] = []

    @property
    def rows(self) -> int:
        return self._merged.num_rows

    def extend(self, parts: Iterable[pa.RecordBatch]) -> None:
        self._new.extend(parts)
        if len(self._new) >= _PARTS:
            self.table()

    def table(self) -> pa.Table:
        new = pa.Table.from_batches(self._new, summed.SCHEMA)
        self._merged, self._new = summed.merged(pa.concat_tables([self._merged, new])), []
        return self._merged


class _Events:
    """The events of a kind of wish."""

    def __init__(self, wanted: Wanted, schema: pa.Schema = EVENTS) -> None:
        self._wanted, self._schema = wanted, schema
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0

    def add(self, found: Ordered) -> None:
        index = np.flatnonzero(self._wanted.mask(found))
        if len(index):
            rows = rows_at(found, index, self._schema.names)
            self._batches.append(record_batch(rows))
            self.rows += len(index)

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches, self._schema)
