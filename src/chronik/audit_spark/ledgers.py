"""One row per event of the ledgers, with its place in the order of its process."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from chronik.audit.ledger import TEXTS
from chronik.audit.rows import Row
from chronik.audit_spark.order import ADDED, read_ordered
from chronik.audit_spark.sources import Unit, read_files, record_batch, schema_of
from chronik.audit_spark.wanted import Wanted

COLUMNS = (*Row._fields, *ADDED)
SCHEMA = schema_of(COLUMNS, TEXTS)
ALL = Wanted()


def events(spark: SparkSession, units: Sequence[Unit], wanted: Wanted = ALL) -> DataFrame:
    """One row per event, as far as they are wanted."""

    def read(unit: Unit) -> Iterator[pa.RecordBatch]:
        return read_events(unit, wanted)

    return read_files(spark, units, SCHEMA, read)


def read_events(unit: Unit, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    for found in read_ordered(unit):
        mask = wanted.mask(found)
        if not mask.any():
            continue
        columns = {name: found.batch.column(name) for name in Row._fields} | found.added
        batch = record_batch(columns)
        yield batch if mask.all() else batch.filter(pa.array(mask))
