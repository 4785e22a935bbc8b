"""The tables about the cluster itself, by name: what `chronik.NAME` means in a query.

Each is a small Arrow table that is made when a query names it; its file says what one row is.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from chronik.pipeline import (
    audits_table,
    brokers_table,
    groups_table,
    lag_table,
    offsets_table,
    snapshots_table,
    topics_table,
    traces_table,
)
from chronik.pipeline.cluster_facts import Facts, gather
from chronik.pipeline.delta_names import delta_names
from chronik.pipeline.delta_table import DeltaWarehouse
from chronik.pipeline.delta_versions import versions
from chronik.pipeline.sql_text import BadQuery
from chronik.pipeline.stored_tables import opened
from chronik.pipeline.warehouse import Warehouse

OF_THE_CLUSTER = {
    "brokers": brokers_table.rows,
    "groups": groups_table.rows,
    "lag": lag_table.rows,
    "offsets": offsets_table.rows,
    "topics": topics_table.rows,
}
NAMES = sorted([*OF_THE_CLUSTER, "audits", "snapshots", "traces"])


@dataclass(frozen=True)
class Places:
    """Where facts come from; what a query does not name is not looked at."""

    bootstrap: str | None
    warehouse: str | Path | Warehouse
    evidence: tuple[str | Path, ...] = ()
    """Folders under which there are trace files and audit reports."""


def system_tables(wanted: Collection[str], places: Places) -> dict[str, pa.Table]:
    """The tables of these names."""
    unknown = sorted(set(wanted) - set(NAMES))
    if unknown:
        raise BadQuery(f"there is no chronik.{unknown[0]}; there are {', '.join(NAMES)}")
    found = {}
    facts = _facts(wanted, places.bootstrap)
    folders = [Path(one) for one in places.evidence]
    for name in sorted(wanted):
        if name in OF_THE_CLUSTER:
            found[name] = OF_THE_CLUSTER[name](facts)
        elif name == "traces":
            found[name] = traces_table.rows(traces_table.read(folders))
        elif name == "audits":
            found[name] = audits_table.rows(audits_table.read(folders))
        else:
            found[name] = _snapshots(places.warehouse)
    return found


def _facts(wanted: Collection[str], bootstrap: str | None) -> Facts:
    of_cluster = set(wanted) & set(OF_THE_CLUSTER)
    if not of_cluster:
        return Facts()
    if bootstrap is None:
        raise BadQuery(f"chronik.{min(of_cluster)} is asked of the cluster: leave --cold out")
    return gather(
        bootstrap,
        offsets=bool(of_cluster & {"offsets", "lag", "groups"}),
        groups=bool(of_cluster & {"lag", "groups"}),
    )


def _snapshots(warehouse: str | Path | Warehouse) -> pa.Table:
    place = opened(warehouse)
    tables = [] if place is None else [place.load(name) for name in place.names()]
    found = [snapshots_table.rows([one for one in tables if one is not None])]
    folder = warehouse.location if isinstance(warehouse, Warehouse) else warehouse
    if delta_names(folder):
        delta = [DeltaWarehouse(folder).load(one) for one in delta_names(folder)]
        rows = [row for one in delta if one is not None for row in versions(one)]
        found.append(pa.Table.from_pylist(rows, snapshots_table.ARROW))
    return pa.concat_tables(found)
