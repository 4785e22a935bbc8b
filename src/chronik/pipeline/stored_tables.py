"""Which tables a warehouse has, Iceberg's and Delta's: a question makes no folder."""

from pathlib import Path

from chronik.pipeline.catalogs import CATALOG_FILE
from chronik.pipeline.delta_names import delta_names
from chronik.pipeline.places import is_remote
from chronik.pipeline.stored import StoredTables
from chronik.pipeline.stored_delta import DeltaStored
from chronik.pipeline.stored_iceberg import IcebergStored
from chronik.pipeline.warehouse import Warehouse


def opened(warehouse: str | Path | Warehouse) -> Warehouse | None:
    """The Iceberg tables, if there are any."""
    if isinstance(warehouse, Warehouse):
        return warehouse
    if is_remote(str(warehouse)):
        return Warehouse(warehouse)
    return Warehouse(warehouse) if (Path(warehouse) / CATALOG_FILE).exists() else None


def stored_tables(warehouse: str | Path | Warehouse) -> dict[str, StoredTables]:
    """Every table by its name; of one that is there in both formats, the Iceberg table."""
    found: dict[str, StoredTables] = {}
    place = warehouse.location if isinstance(warehouse, Warehouse) else warehouse
    if delta_names(place):
        found = dict.fromkeys(delta_names(place), DeltaStored(place))
    iceberg = opened(warehouse)
    if iceberg is not None:
        tables = IcebergStored(iceberg)
        found |= dict.fromkeys(tables.names(), tables)
    return found
