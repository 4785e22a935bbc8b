"""Tables as `status` sees them: what they say of their offsets, commits and size, in any format."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from chronik.pipeline import dlq_table
from chronik.pipeline.delta_table import DeltaTable, DeltaWarehouse
from chronik.pipeline.warehouse import (
    RANGES,
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
class Watched:
    """One topic's table and its dead letters."""

    format: str
    name: str
    topic: str
    state: State
    commits: list[Commit]
    """Those that the table still knows, the newest first."""
    totals: Totals
    bad: int
    """Rows of the dead letter table."""


def iceberg_tables(warehouse: Warehouse) -> Iterator[Watched]:
    """Every topic's Iceberg table."""
    for topic, name in warehouse.topics().items():
        table, letters = warehouse.load(name), warehouse.load(name + dlq_table.SUFFIX)
        if table is not None:
            bad = 0 if letters is None else _iceberg_totals(letters)[0]
            commits, totals = _iceberg_commits(table), _iceberg_totals(table)
            yield Watched("iceberg", name, topic, state_of(table), commits, totals, bad)


def delta_tables(warehouse: DeltaWarehouse) -> Iterator[Watched]:
    """Every topic's Delta table."""
    for topic, name in warehouse.topics().items():
        table, letters = warehouse.load(name), warehouse.load(name + dlq_table.SUFFIX)
        if table is not None:
            bad = 0 if letters is None else _delta_totals(letters)[0]
            commits, totals = _delta_commits(table), _delta_totals(table)
            yield Watched("delta", name, topic, table.state(), commits, totals, bad)


def _iceberg_commits(table: Table) -> list[Commit]:
    found = []
    for snapshot in marked_snapshots(table):
        told = properties_of(snapshot).get(RANGES)
        if told is not None:  # compaction carries the offsets and adds no records
            found.append((snapshot.timestamp_ms, offsets_in(told)))
    return found


def _iceberg_totals(table: Table) -> Totals:
    """As the newest snapshot's summary states them."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0, 0, 0
    told = snapshot.summary.additional_properties
    names = ("total-records", "total-data-files", "total-files-size")
    rows, files, size = (int(told.get(name, 0)) for name in names)
    return rows, files, size


def _delta_commits(table: DeltaTable) -> list[Commit]:
    history: list[dict[str, Any]] = table.table.history()
    told = [(one["timestamp"], offsets_in(one.get(RANGES, "{}"))) for one in history]
    return [one for one in told if one[1]]


def _delta_totals(table: DeltaTable) -> Totals:
    actions: Any = pa.table(table.table.get_add_actions(flatten=True))
    rows, sizes = (actions.column(name).to_pylist() for name in ("num_records", "size_bytes"))
    return sum(one or 0 for one in rows), len(sizes), sum(sizes)


def offsets_in(ranges: str) -> int:
    """The number of offsets that a commit says it moved."""
    return sum(end - start for start, end in json.loads(ranges).values())
