"""How far the tables are behind their topics: one row per topic partition."""

from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table import Table

from chronik.pipeline import dlq_table
from chronik.pipeline.client import LATEST, READ_COMMITTED, Cluster
from chronik.pipeline.warehouse import Warehouse, state_of


@dataclass(frozen=True)
class PartitionStatus:
    """One partition of a topic and its place in the table."""

    topic: str
    table: str
    partition: int
    table_end: int | None
    """The offset that is ingested next; None where nothing was ingested yet."""
    log_end: int | None
    committed_ms: int | None

    @property
    def lag(self) -> int | None:
        """Records of the log that the table does not have yet, gaps counted."""
        return None if self.log_end is None else self.log_end - (self.table_end or 0)


@dataclass(frozen=True)
class TableStatus:
    """One table: its partitions and its size."""

    topic: str
    table: str
    partitions: list[PartitionStatus]
    rows: int
    files: int
    bytes: int
    bad: int


def status(bootstrap: str | None, warehouse: str | Path | Warehouse) -> list[TableStatus]:
    """Every table of the warehouse; without a cluster the log's ends are unknown."""
    place = warehouse if isinstance(warehouse, Warehouse) else Warehouse(warehouse)
    found = []
    for topic, name in sorted(place.topics().items()):
        table = place.load(name)
        assert table is not None
        ends = {} if bootstrap is None else _ends(bootstrap, topic)
        rows, files, size = totals(table)
        letters = place.load(name + dlq_table.SUFFIX)
        bad = 0 if letters is None else totals(letters)[0]
        found.append(
            TableStatus(topic, name, _partitions(topic, table, ends), rows, files, size, bad)
        )
    return found


def _partitions(topic: str, table: Table, ends: dict[int, int]) -> list[PartitionStatus]:
    state = state_of(table)
    name = table.name()[-1]
    return [
        PartitionStatus(topic, name, one, state.next.get(one), ends.get(one), state.committed_ms)
        for one in sorted({*state.next, *ends})
    ]


def _ends(bootstrap: str, topic: str) -> dict[int, int]:
    with Cluster(bootstrap) as cluster:
        wanted = dict.fromkeys(cluster.partitions([topic]), LATEST)
        return {p: end for (_, p), end in cluster.offsets(wanted, READ_COMMITTED).items()}


def totals(table: Table) -> tuple[int, int, int]:
    """Rows, files and bytes of the newest snapshot, as its summary states them."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0, 0, 0
    told = snapshot.summary.additional_properties
    names = ("total-records", "total-data-files", "total-files-size")
    rows, files, size = (int(told.get(name, 0)) for name in names)
    return rows, files, size
