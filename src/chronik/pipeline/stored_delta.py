"""Delta tables as SQL sees them: a version, its files, its columns and its offsets."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from chronik.pipeline.delta_names import delta_names
from chronik.pipeline.delta_table import DeltaTable, DeltaWarehouse, deltalake
from chronik.pipeline.sql_text import AsOf, BadQuery
from chronik.pipeline.stored import Stored, nothing_as_of
from chronik.pipeline.warehouse import MODE, REGISTRY, TOPIC

_NOT_IN_FILES = {"deletionVectors", "columnMapping"}
"""With these a table's files alone do not say what its rows are."""


class DeltaStored:
    """The tables of a folder (`stored.StoredTables`); nothing is loaded before a table is named."""

    def __init__(self, location: str | Path) -> None:
        self._location = location

    def names(self) -> list[str]:
        return delta_names(self._location)

    def topics(self) -> dict[str, str]:
        return DeltaWarehouse(self._location).topics()

    def at(self, name: str, as_of: AsOf | None) -> Stored | None:
        table = DeltaWarehouse(self._location).load(name)
        if table is None or table.properties.get(TOPIC) is None:
            return None
        if as_of is not None:
            to_version(table, as_of)
        protocol: Any = table.table.protocol()
        if odd := _NOT_IN_FILES & set(protocol.reader_features or ()):
            raise BadQuery(
                f"another engine gave the Delta table '{name}' {', '.join(sorted(odd))}: read it "
                "with that engine"
            )
        actions: Any = pa.table(table.table.get_add_actions(flatten=True))
        return Stored(
            name,
            table.properties[TOPIC],
            table.properties.get(MODE, "raw"),
            table.schema(),
            tuple(table.files()),
            sum(actions.column("size_bytes").to_pylist()),
            table.state(),
            table.access,
            table.properties.get(REGISTRY),
        )

    def holds(self, name: str, batch_id: str) -> bool:
        letters = DeltaWarehouse(self._location).load(name)
        return letters is not None and letters.holds(batch_id)


def to_version(table: DeltaTable, as_of: AsOf) -> None:
    """Takes the table back to a version, or to the newest one of a moment."""
    history: list[dict[str, Any]] = table.table.history()
    if as_of.moment_ms is None:
        found = [one["version"] for one in history if one["version"] == as_of.snapshot_id]
    else:
        found = [one["version"] for one in history if one["timestamp"] <= as_of.moment_ms]
    if not found:
        raise nothing_as_of(table.name, as_of)
    try:
        table.table.load_as_version(found[0])
    except deltalake("deltalake.exceptions").DeltaError as error:
        raise nothing_as_of(table.name, as_of) from error
