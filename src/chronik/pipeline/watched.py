"""Tables as `status` sees them (`status.Watched`): their offsets, commits and size."""

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from chronik.pipeline import dlq_table
from chronik.pipeline.delta_table import DeltaTable, DeltaWarehouse
from chronik.pipeline.warehouse import (
    RANGES,
    TOPIC,
    State,
    Warehouse,
    marked_snapshots,
    properties_of,
    state_of,
)

Commit = tuple[int, int]
"""(time in ms, offsets) of a commit of records."""
Totals = tuple[int, int, int]
"""Rows, files and bytes of the newest snapshot."""


@dataclass(frozen=True)
class IcebergWatched:
    """One Iceberg table and its dead letters."""

    table: Table
    letters: Table | None
    format: str = "iceberg"

    @classmethod
    def all(cls, warehouse: Warehouse) -> "list[IcebergWatched]":
        """Every topic's table."""
        names = warehouse.topics().values()
        both = [(warehouse.load(one), warehouse.load(one + dlq_table.SUFFIX)) for one in names]
        return [cls(table, letters) for table, letters in both if table is not None]

    @property
    def name(self) -> str:
        return self.table.name()[-1]

    @property
    def topic(self) -> str:
        return self.table.properties[TOPIC]

    def state(self) -> State:
        return state_of(self.table)

    def commits(self) -> list[Commit]:
        found = []
        for snapshot in marked_snapshots(self.table):
            told = properties_of(snapshot).get(RANGES)
            if told is not None:  # compaction carries the offsets and adds no records
                found.append((snapshot.timestamp_ms, offsets_in(told)))
        return found

    def totals(self) -> Totals:
        return _iceberg_totals(self.table)

    def bad(self) -> int:
        return 0 if self.letters is None else _iceberg_totals(self.letters)[0]


def _iceberg_totals(table: Table) -> Totals:
    """As the newest snapshot's summary states them."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0, 0, 0
    told = snapshot.summary.additional_properties
    names = ("total-records", "total-data-files", "total-files-size")
    rows, files, size = (int(told.get(name, 0)) for name in names)
    return rows, files, size


@dataclass(frozen=True)
class DeltaWatched:
    """One Delta table and its dead letters."""

    table: DeltaTable
    letters: DeltaTable | None
    format: str = "delta"

    @classmethod
    def all(cls, warehouse: DeltaWarehouse) -> "list[DeltaWatched]":
        """Every topic's table."""
        names = warehouse.topics().values()
        both = [(warehouse.load(one), warehouse.load(one + dlq_table.SUFFIX)) for one in names]
        return [cls(table, letters) for table, letters in both if table is not None]

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def topic(self) -> str:
        return self.table.properties[TOPIC]

    def state(self) -> State:
        return self.table.state()

    def commits(self) -> list[Commit]:
        history: list[dict[str, Any]] = self.table.table.history()
        told = [(one["timestamp"], offsets_in(one.get(RANGES, "{}"))) for one in history]
        return [one for one in told if one[1]]

    def totals(self) -> Totals:
        return _delta_totals(self.table)

    def bad(self) -> int:
        return 0 if self.letters is None else _delta_totals(self.letters)[0]


def _delta_totals(table: DeltaTable) -> Totals:
    actions: Any = pa.table(table.table.get_add_actions(flatten=True))
    rows, sizes = (actions.column(name).to_pylist() for name in ("num_records", "size_bytes"))
    return sum(one or 0 for one in rows), len(sizes), sum(sizes)


def offsets_in(ranges: str) -> int:
    """The number of offsets that a commit says it moved."""
    return sum(end - start for start, end in json.loads(ranges).values())
