"""One pass over all ledgers: blocks added up, the rows that are few, and a sample of the others.

A pass decodes every file, so what can be had in one is. Its rows are of two kinds in one table:
parts of blocks (`fold.FOLDED` is set) and events (`ledgers.COLUMNS` is), told apart by flags.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from chronik.audit.ledger import TEXTS
from chronik.audit_spark import fold
from chronik.audit_spark.blocks import merged
from chronik.audit_spark.ledgers import COLUMNS, rows_at
from chronik.audit_spark.order import Array, Ordered, read_ordered
from chronik.audit_spark.session import kept_whole
from chronik.audit_spark.sources import Unit, read_files, schema_of
from chronik.audit_spark.wanted import Wanted

SAMPLE_VALUES = 50_000
"""At least about so many values give the latencies and curves of a large ledger."""
EVENT_BYTES = 12
"""An event takes at most so much on disk: with fewer bytes more values are taken."""
NOTES = Wanted(everything=False)
_FLAGS = ("is_block", "is_note", "is_sample")
_ALL = tuple(dict.fromkeys((*_FLAGS, *COLUMNS, *fold.FOLDED)))
_TYPES = {name: pa.string() if name in TEXTS else pa.int64() for name in _ALL}
_SCHEMA = pa.schema(list(_TYPES.items()))
_BATCHES = 64
"""Parts of so many batches go to Spark together."""


class Survey(NamedTuple):
    """What one pass finds."""

    blocks: DataFrame
    notes: DataFrame
    sample: DataFrame
    step: int
    """Every so many-th sequence is in the sample."""


def survey(spark: SparkSession, units: Sequence[Unit], block_size: int) -> Survey:
    step = sample_step(units)

    def read(unit: Unit) -> Iterator[pa.RecordBatch]:
        return read_parts(unit, block_size, step)

    parts = kept_whole(read_files(spark, units, schema_of(_ALL, TEXTS), read))
    blocks = merged(parts.where("is_block = 1").select(*fold.FOLDED))
    notes = parts.where("is_note = 1").select(*COLUMNS)
    sample = parts.where("is_sample = 1").select(*COLUMNS)
    return Survey(kept_whole(blocks), kept_whole(notes), sample, step)


def sample_step(units: Sequence[Unit]) -> int:
    """By the size of the files, because their events are counted only in the pass itself."""
    size = sum(Path(name).stat().st_size for unit in units for _, name in unit)
    return max(1, size // EVENT_BYTES // 2 // SAMPLE_VALUES)


def read_parts(unit: Unit, block_size: int, step: int) -> Iterator[pa.RecordBatch]:
    sampled = Wanted(everything=False, notes=False, sample_step=step)
    waiting: list[pa.RecordBatch] = []
    for found in read_ordered(unit):
        waiting += [_wide(part, {"is_block": 1}) for part in fold.fold(found, block_size)]
        waiting += _events(found, NOTES.mask(found), sampled.mask(found))
        if len(waiting) >= _BATCHES:
            yield from _joined(waiting)
            waiting = []
    yield from _joined(waiting)


def _joined(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(parts, _SCHEMA).combine_chunks().to_batches()


def _events(found: Ordered, noted: Array, sampled: Array) -> Iterator[pa.RecordBatch]:
    index = np.flatnonzero(noted | sampled)
    if not len(index):
        return
    flags = {"is_note": noted[index].astype("int64"), "is_sample": sampled[index].astype("int64")}
    yield _wide(pa.record_batch(rows_at(found, index)), flags)


def _wide(batch: pa.RecordBatch, flags: dict[str, Any]) -> pa.RecordBatch:
    """All columns; null where the row has none."""
    rows, names = batch.num_rows, set(batch.schema.names)
    arrays = []
    for name, kind in _TYPES.items():
        if name in names:
            arrays.append(batch.column(name))
        elif name in flags and not isinstance(flags[name], int):
            arrays.append(pa.array(flags[name]))
        else:
            value = flags.get(name)
            arrays.append(pa.nulls(rows, kind) if value is None else pa.repeat(value, rows))
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
