"""One row per event of the ledgers, with its place in the order of its process."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from chronik.audit.ledger import TEXTS
from chronik.audit.rows import Row
from chronik.audit_spark.order import ADDED, Array, Ordered, read_ordered
from chronik.audit_spark.sources import Unit, read_files, record_batch, schema_of
from chronik.audit_spark.wanted import Wanted

COLUMNS = (*Row._fields, *ADDED)
SCHEMA = schema_of(COLUMNS, TEXTS)
EVENTS = pa.schema([(name, pa.string() if name in TEXTS else pa.int64()) for name in COLUMNS])
ALL = Wanted()


def events(spark: SparkSession, units: Sequence[Unit], wanted: Wanted = ALL) -> DataFrame:
    """One row per event, as far as they are wanted."""

    def read(unit: Unit) -> Iterator[pa.RecordBatch]:
        return read_events(unit, wanted)

    return read_files(spark, units, SCHEMA, read)


def read_events(unit: Unit, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    for found in read_ordered(unit):
        index = np.flatnonzero(wanted.mask(found))
        if len(index):
            yield record_batch(rows_at(found, index))


def rows_at(found: Ordered, index: Array, names: Sequence[str] = COLUMNS) -> dict[str, Any]:
    """The columns of some rows of a batch."""
    return {
        name: pa.array(found.added[name][index])
        if name in found.added
        else found.batch.taken(name, index)
        for name in names
    }
