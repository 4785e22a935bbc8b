"""One row per snapshot of a table: what time travel can go back to, and the offsets it holds."""

from collections.abc import Iterable

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from chronik.pipeline.warehouse import NEXT, TOPIC, properties_of

COLUMNS: dict[str, pa.DataType] = {
    "table": pa.string(),
    "topic": pa.string(),
    "snapshot_id": pa.int64(),
    "committed": pa.timestamp("us", tz="UTC"),
    "operation": pa.string(),
    "added_rows": pa.int64(),
    "rows": pa.int64(),
    "files": pa.int64(),
    "bytes": pa.int64(),
    "next_offsets": pa.string(),
    "current": pa.bool_(),
}
ARROW = pa.schema(COLUMNS)


def rows(tables: Iterable[Table]) -> pa.Table:
    """The oldest first, per table."""
    found = [_row(table, one) for table in tables for one in table.snapshots()]
    return pa.Table.from_pylist(found, ARROW)


def _row(table: Table, snapshot: Snapshot) -> dict[str, object]:
    told = properties_of(snapshot)
    current = table.current_snapshot()
    return {
        "table": table.name()[-1],
        "topic": table.properties.get(TOPIC),
        "snapshot_id": snapshot.snapshot_id,
        "committed": snapshot.timestamp_ms * 1_000,
        "operation": snapshot.summary.operation.value if snapshot.summary else None,
        "added_rows": int(told.get("added-records", 0)),
        "rows": int(told.get("total-records", 0)),
        "files": int(told.get("total-data-files", 0)),
        "bytes": int(told.get("total-files-size", 0)),
        "next_offsets": told.get(NEXT),
        "current": current is not None and current.snapshot_id == snapshot.snapshot_id,
    }
