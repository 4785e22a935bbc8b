"""How far the tables are behind their topics: one row per topic partition.

Everything is read from the tables' own snapshots and from the log's offsets, so it needs no Spark
and no running ingester, and it is right about an ingester on another machine too.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table import Table

from chronik.pipeline import dlq_table
from chronik.pipeline.client import EARLIEST, LATEST, READ_COMMITTED, Cluster
from chronik.pipeline.warehouse import (
    RANGES,
    Warehouse,
    marked_snapshots,
    properties_of,
    state_of,
)

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

    @property
    def lag(self) -> int | None:
        """Of all partitions; None where the log was not asked."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None


def status(bootstrap: str | None, warehouse: str | Path | Warehouse) -> list[TableStatus]:
    """Every table of the warehouse; without a cluster the log's ends are unknown."""
    place = warehouse if isinstance(warehouse, Warehouse) else Warehouse(warehouse)
    return [_table(bootstrap, place, topic, name) for topic, name in sorted(place.topics().items())]


def _table(bootstrap: str | None, place: Warehouse, topic: str, name: str) -> TableStatus:
    table = place.load(name)
    assert table is not None
    starts, ends = ({}, {}) if bootstrap is None else _bounds(bootstrap, topic)
    rows, files, size = totals(table)
    letters = place.load(name + dlq_table.SUFFIX)
    commits = commits_of(table)
    return TableStatus(
        topic,
        name,
        _partitions(topic, table, starts, ends),
        rows,
        files,
        size,
        0 if letters is None else totals(letters)[0],
        len(commits),
        state_of(table).committed_ms,
        rate(commits),
    )


def _partitions(
    topic: str, table: Table, starts: Mapping[int, int], ends: Mapping[int, int]
) -> list[PartitionStatus]:
    state = state_of(table)
    name = table.name()[-1]
    return [
        PartitionStatus(
            topic,
            name,
            one,
            state.next.get(one),
            ends.get(one),
            state.committed_ms,
            starts.get(one),
        )
        for one in sorted({*state.next, *ends})
    ]


def _bounds(bootstrap: str, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    with Cluster(bootstrap) as cluster:
        partitions = cluster.partitions([topic])
        starts = cluster.offsets(dict.fromkeys(partitions, EARLIEST))
        ends = cluster.offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
    return {p: one for (_, p), one in starts.items()}, {p: one for (_, p), one in ends.items()}


def commits_of(table: Table) -> list[tuple[int, int]]:
    """(time in ms, offsets) of each commit of records, the newest first."""
    found = []
    for snapshot in marked_snapshots(table):
        told = properties_of(snapshot).get(RANGES)
        if told is not None:  # compaction carries the offsets and adds no records
            ranges = json.loads(told).values()
            found.append((snapshot.timestamp_ms, sum(end - start for start, end in ranges)))
    return found


def rate(commits: Iterable[tuple[int, int]]) -> float | None:
    """Offsets a second over the newest commits (newest first).

    The first of them only starts the clock: its records were written before it.
    """
    newest = list(commits)[:RATE_COMMITS_MAX]
    recent = [one for one in newest if newest[0][0] - one[0] <= RATE_MS_MAX]
    if len(recent) < 2 or recent[0][0] <= recent[-1][0]:
        return None
    return sum(offsets for _, offsets in recent[:-1]) * 1_000 / (recent[0][0] - recent[-1][0])


def totals(table: Table) -> tuple[int, int, int]:
    """Rows, files and bytes of the newest snapshot, as its summary states them."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0, 0, 0
    told = snapshot.summary.additional_properties
    names = ("total-records", "total-data-files", "total-files-size")
    rows, files, size = (int(told.get(name, 0)) for name in names)
    return rows, files, size
