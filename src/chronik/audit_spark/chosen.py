"""The events that are judged: few of them in memory, many with Spark."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from chronik.audit.rows import Row
from chronik.audit_spark.ledgers import EVENTS, events, read_events
from chronik.audit_spark.notes import Notes, rows_of
from chronik.audit_spark.session import MANY_ROWS, kept_whole, plan_for
from chronik.audit_spark.sources import Unit, bytes_of, gathered
from chronik.audit_spark.wanted import Wanted

FEW_ROWS_MAX = 300_000
"""Up to so many rows are judged in memory, in some ten seconds and half a gigabyte."""
LEAST_BYTES = 6
"""An event takes about so much on disk."""


class Rows:
    """Events with their lines, in one of two ways."""

    def __init__(self, few: pa.Table | None, many: DataFrame | None = None) -> None:
        self.few, self._many = few, many

    @cached_property
    def in_memory(self) -> list[Row]:
        assert self.few is not None
        return rows_of(self.few)

    def frame(self) -> DataFrame:
        assert self._many is not None
        return self._many


class Reader(NamedTuple):
    """Reads events; what it is told about their number decides where they go.

    Without a session all must be few.
    """

    spark: SparkSession | None
    units: Sequence[Unit]
    few_max: int = FEW_ROWS_MAX
    """With 0 all are many."""

    def are_few(self, rows: int) -> bool:
        return self.few_max > 0 and rows <= self.few_max

    def everything(self) -> Rows:
        if self.are_few(bytes_of(self.units) // LEAST_BYTES):
            few = self._gathered(Wanted())
            if few is not None:
                return Rows(few)
        assert self.spark is not None, "too many rows to be judged without Spark"
        rows = events(self.spark, self.units).localCheckpoint()
        count = rows.count()
        plan_for(self.spark, count)
        return Rows(None, kept_whole(rows) if count < MANY_ROWS else rows)

    def some(self, wanted: Wanted, notes: Notes, about: int) -> Rows:
        """The notes, and what else is wanted: about so many rows."""
        if self.are_few(about + notes.table.num_rows):
            few = self._gathered(replace(wanted, notes=False))
            if few is not None:
                return Rows(pa.concat_tables([notes.table, few]))
        assert self.spark is not None, "too many rows to be judged without Spark"
        rows = kept_whole(events(self.spark, self.units, wanted))
        plan_for(self.spark, rows.count())
        return Rows(None, rows)

    def _gathered(self, wanted: Wanted) -> pa.Table | None:
        most = self.few_max

        def gather(unit: Unit) -> list[tuple[str, pa.Table]]:
            batches, rows = [], 0
            for batch in read_events(unit, wanted):
                batches.append(batch)
                rows += batch.num_rows
                if rows > most:
                    return []
            return [("rows", pa.Table.from_batches(batches, EVENTS))]

        found = gathered(self.spark, self.units, {"rows": EVENTS}, gather)
        rows = found["rows"] if found else None
        return rows if rows is not None and rows.num_rows <= most else None
