"""How far the tables are behind their topics: one row per topic partition.

Everything is read from the tables' own snapshots and from the log's offsets, so it needs no Spark
and no running ingester, and it is right about an ingester on another machine too.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from chronik.pipeline.client import EARLIEST, LATEST, READ_COMMITTED, Cluster, UnknownTopic
from chronik.pipeline.delta_names import delta_names
from chronik.pipeline.delta_table import DeltaWarehouse
from chronik.pipeline.stored_tables import opened
from chronik.pipeline.warehouse import Warehouse
from chronik.pipeline.watched import Commit, Watched, delta_tables, iceberg_tables

RATE_COMMITS_MAX = 20
RATE_MS_MAX = 10 * 60 * 1_000
"""The rate is that of the newest commits: so many, and not older than this before the last."""


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
    log_start: int | None = None

    @property
    def lag(self) -> int | None:
        """Records of the log that the table does not have yet, gaps counted."""
        if self.log_end is None:
            return None
        first = self.log_start or 0 if self.table_end is None else self.table_end
        return self.log_end - first

    @property
    def deleted(self) -> int:
        """Offsets that retention deleted before they were ingested: they are in no table."""
        if self.table_end is None or self.log_start is None:
            return 0
        return max(0, self.log_start - self.table_end)


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
    commits: int = 0
    """Commits of records that the table still knows; expiry forgets old ones."""
    committed_ms: int | None = None
    offsets_per_s: float | None = None
    """How fast the newest commits followed; None where there are fewer than two."""
    format: str = "iceberg"

    @property
    def lag(self) -> int | None:
        """Of all partitions; None where the log was not asked."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None


def status(bootstrap: str | None, warehouse: str | Path | Warehouse) -> list[TableStatus]:
    """Every table of the warehouse; without a cluster the log's ends are unknown."""
    tables: list[Watched] = []
    iceberg = opened(warehouse)
    if iceberg is not None:
        tables += iceberg_tables(iceberg)
    place = warehouse.location if isinstance(warehouse, Warehouse) else warehouse
    if delta_names(place) and find_spec("deltalake") is not None:
        tables += delta_tables(DeltaWarehouse(place))
    return [_table(bootstrap, one) for one in sorted(tables, key=lambda one: one.topic)]


def _table(bootstrap: str | None, table: Watched) -> TableStatus:
    starts, ends = ({}, {}) if bootstrap is None else _bounds(bootstrap, table.topic)
    state = table.state
    partitions = [
        PartitionStatus(
            table.topic,
            table.name,
            one,
            state.next.get(one),
            ends.get(one),
            state.committed_ms,
            starts.get(one),
        )
        for one in sorted({*state.next, *ends})
    ]
    return TableStatus(
        table.topic,
        table.name,
        partitions,
        *table.totals,
        table.bad,
        len(table.commits),
        state.committed_ms,
        rate(table.commits),
        table.format,
    )


def _bounds(bootstrap: str, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    with Cluster(bootstrap) as cluster:
        try:
            partitions = cluster.partitions([topic])
        except UnknownTopic:
            return {}, {}  # it was deleted, and the table outlives it
        starts = cluster.offsets(dict.fromkeys(partitions, EARLIEST))
        ends = cluster.offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
    return {p: one for (_, p), one in starts.items()}, {p: one for (_, p), one in ends.items()}


def rate(commits: Iterable[Commit]) -> float | None:
    """Offsets a second over the newest commits (newest first).

    The first of them only starts the clock: its records were written before it.
    """
    newest = list(commits)[:RATE_COMMITS_MAX]
    recent = [one for one in newest if newest[0][0] - one[0] <= RATE_MS_MAX]
    if len(recent) < 2 or recent[0][0] <= recent[-1][0]:
        return None
    return sum(offsets for _, offsets in recent[:-1]) * 1_000 / (recent[0][0] - recent[-1][0])
