"""Iceberg tables as SQL sees them: a snapshot, its files, its columns and its offsets."""

import json

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from chronik.pipeline.arrow_types import small_types
from chronik.pipeline.places import access_in
from chronik.pipeline.sql_text import AsOf
from chronik.pipeline.stored import Stored, nothing_as_of
from chronik.pipeline.warehouse import (
    BAD_FILES,
    BATCH,
    MODE,
    NEXT,
    REGISTRY,
    TOPIC,
    State,
    Warehouse,
    properties_of,
)


class IcebergStored:
    """The tables of a warehouse (`stored.StoredTables`)."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def names(self) -> list[str]:
        return self._warehouse.names()

    def topics(self) -> dict[str, str]:
        return self._warehouse.topics()

    def at(self, name: str, as_of: AsOf | None) -> Stored | None:
        table = self._warehouse.load(name)
        if table is None or TOPIC not in table.properties:
            return None
        snapshot = snapshot_at(table, as_of)
        files, size = files_at(table, snapshot)
        return Stored(
            name,
            table.properties[TOPIC],
            table.properties.get(MODE, "raw"),
            # The newest columns may be ahead of the newest rows, and they judge what comes next.
            schema_at(table, None if as_of is None else snapshot),
            files,
            size,
            state_at(table, snapshot),
            access_in(table.io.properties),
            table.properties.get(REGISTRY),
        )

    def holds(self, name: str, batch_id: str) -> bool:
        letters = self._warehouse.load(name)
        if letters is None:
            return False
        return any(properties_of(one).get(BATCH) == batch_id for one in letters.snapshots())


def state_at(table: Table, snapshot: Snapshot | None) -> State:
    """How far the table was: told by the snapshot, or by the nearest ancestor that tells it."""
    while snapshot is not None:
        told = properties_of(snapshot)
        if BATCH in told:
            following = {int(p): end for p, end in json.loads(told.get(NEXT, "{}")).items()}
            bad = tuple(json.loads(told.get(BAD_FILES, "[]")))
            return State(told[BATCH], {}, following, bad, snapshot.timestamp_ms)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return State()


def snapshot_at(table: Table, as_of: AsOf | None) -> Snapshot | None:
    """The newest snapshot, or the one that `as_of` means; None where the table is empty."""
    if as_of is None:
        return table.current_snapshot()
    if as_of.moment_ms is None:
        found = table.snapshot_by_id(as_of.snapshot_id or 0)
    else:
        found = table.snapshot_as_of_timestamp(as_of.moment_ms)
    if found is None:
        raise nothing_as_of(table.name()[-1], as_of)
    return found


def files_at(table: Table, snapshot: Snapshot | None) -> tuple[tuple[str, ...], int]:
    """The files of a snapshot and their bytes."""
    if snapshot is None:
        return (), 0
    files = [task.file for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()]
    return tuple(one.file_path for one in files), sum(one.file_size_in_bytes for one in files)


def schema_at(table: Table, snapshot: Snapshot | None) -> pa.Schema:
    """The columns at a snapshot, in Arrow's small types."""
    number = None if snapshot is None else snapshot.schema_id
    schema = table.schema() if number is None else table.schemas()[number]
    return small_types(schema.as_arrow())
