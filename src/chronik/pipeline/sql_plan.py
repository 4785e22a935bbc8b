"""What a query reads: files of one snapshot per table, and the log from that snapshot's offsets on.

The plan is the same for every engine and needs neither Spark nor Java. Both parts of a view meet at
the offsets of one snapshot, so their union needs no deduplication.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from chronik.pipeline.arrow_types import small_types
from chronik.pipeline.catalogs import CATALOG_FILE
from chronik.pipeline.client import EARLIEST, LATEST, READ_COMMITTED, Cluster, TopicPartition
from chronik.pipeline.decode import SCHEMA
from chronik.pipeline.delta_names import delta_names
from chronik.pipeline.sql_text import AsOf, BadQuery, names, system_names, without_time_travel
from chronik.pipeline.warehouse import (
    BAD_FILES,
    BATCH,
    MODE,
    NEXT,
    TOPIC,
    State,
    Warehouse,
    properties_of,
    table_name,
)

Mode = Literal["raw", "json"]
Ranges = dict[TopicPartition, tuple[int, int]]
LOG_MODES: Final = ("raw", "json")
"""Modes whose records SQL can read from the log."""
LETTERS_SUFFIX: Final = "__dlq"
_RAW_NAMES = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
RAW: Final = pa.schema([SCHEMA.field(name) for name in _RAW_NAMES])
LETTERS: Final = pa.schema(
    [SCHEMA.field(name) for name in ("partition", "offset", "timestamp", "key", "value")]
    + [pa.field("reason", pa.string())]
)


@dataclass(frozen=True)
class View:
    """One name of the query: rows of a topic, or its dead letters."""

    name: str
    topic: str
    mode: Mode
    schema: pa.Schema | None
    """The columns; None where only the log's JSON can tell them."""
    fields: pa.Schema | None
    """The columns of the topic's table: what decides whether a record is a row or a dead letter."""
    letters: bool = False
    files: tuple[str, ...] = ()
    bytes: int = 0
    ranges: Ranges = field(default_factory=dict)
    """What is read from the log."""
    next: Mapping[int, int] = field(default_factory=dict)
    """Where the table's part ends. A dead letter table may be ahead: only its rows below count."""

    @property
    def hot(self) -> int:
        """Offsets that are read from the log."""
        return sum(end - start for start, end in self.ranges.values())


@dataclass(frozen=True)
class Plan:
    """A query whose views are known."""

    text: str
    views: list[View]
    system: list[str]
    known: tuple[str, ...] = ()
    """Every name that could have been in the text: tables, and topics as tables."""

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.views)

    @property
    def hot(self) -> int:
        return sum(one.hot for one in self.views)


def plan(
    text: str,
    bootstrap: str | None,
    warehouse: str | Path | Warehouse,
    *,
    as_of: AsOf | None = None,
    mode: Mode = "raw",
) -> Plan:
    """The views that the text names.

    bootstrap: where the log is; None answers from the tables alone. as_of: every table as it was
    then, without the log. mode: how a topic that has no table yet is read.
    """
    place = opened(warehouse)
    tables = {} if place is None else {one.lower(): one for one in place.names()}
    plain, past = without_time_travel(text, tables)
    named = names(plain)
    planner = _Planner(place, bootstrap if as_of is None else None, as_of)
    views = [view for name in _topic_tables(tables.values()) for view in planner.views(name, named)]
    for view, (name, when) in past.items():
        views += _Planner(place, None, when).views(tables[name], {name}, view)
    if isinstance(warehouse, str | Path):
        refuse_delta(warehouse, named - set(tables))
    known = list(tables.values())
    if bootstrap is not None and as_of is None:
        with Cluster(bootstrap) as cluster:
            topics = [one for one in cluster.topics() if table_name(one).lower() not in tables]
        views += log_views(bootstrap, topics, named - set(tables), mode)
        known += map(table_name, topics)
    return Plan(plain, views, sorted(system_names(text)), tuple(sorted(known)))


def opened(warehouse: str | Path | Warehouse) -> Warehouse | None:
    """The warehouse, if there is one: a question makes no folder."""
    if isinstance(warehouse, Warehouse):
        return warehouse
    return Warehouse(warehouse) if (Path(warehouse) / CATALOG_FILE).exists() else None


def refuse_delta(warehouse: str | Path, unknown: Collection[str]) -> None:
    """A Delta table is refused by its name rather than read from the log alone."""
    for name in delta_names(warehouse):
        if name.lower() in unknown:
            raise BadQuery(
                f"'{name}' is a Delta table, and SQL reads Iceberg tables: read it with Spark's "
                "Delta, duckdb's delta_scan or the package deltalake"
            )


def _topic_tables(tables: Collection[str]) -> list[str]:
    return sorted(one for one in tables if not one.endswith(LETTERS_SUFFIX))


class _Planner:
    """Makes views of one warehouse at one time."""

    def __init__(self, place: Warehouse | None, bootstrap: str | None, as_of: AsOf | None) -> None:
        self._place, self._bootstrap, self._as_of = place, bootstrap, as_of

    def views(self, name: str, named: Collection[str], view: str = "") -> list[View]:
        """The table's view and the one of its dead letters, where they are named."""
        wanted = {name.lower(), (name + LETTERS_SUFFIX).lower()} & set(named)
        if not wanted or self._place is None:
            return []
        if name.lower().endswith(LETTERS_SUFFIX):
            raise BadQuery(f"{name}: name the table itself; dead letters have no versions")
        table = self._place.load(name)
        if table is None or TOPIC not in table.properties:
            return []
        rows = self._rows(table, view or name)
        found = [rows] if name.lower() in wanted else []
        if len(wanted) > len(found) and rows.mode != "raw":
            found.append(self._letters(table, rows))
        return found

    def _rows(self, table: Table, view: str) -> View:
        snapshot = snapshot_at(table, self._as_of)
        files, size = files_at(table, snapshot)
        topic, mode = table.properties[TOPIC], _mode(table)
        schema = schema_at(table, snapshot)
        state = state_at(table, snapshot)
        ranges = {}
        # What a registry describes cannot be read from the log without it: the table alone.
        if self._bootstrap is not None and table.properties.get(MODE, "raw") in LOG_MODES:
            ranges = hot_ranges(self._bootstrap, topic, state)
        return View(view, topic, mode, schema, schema, False, files, size, ranges, state.next)

    def _letters(self, table: Table, rows: View) -> View:
        """The letters up to where the table is, then those of the log."""
        assert self._place is not None
        name = table.name()[-1] + LETTERS_SUFFIX
        state = state_at(table, snapshot_at(table, self._as_of))
        letters = self._place.load(name)
        files, size = ((), 0) if letters is None else files_at(letters, letters.current_snapshot())
        if state.bad_files and not _holds(letters, state.batch_id):
            files += state.bad_files  # committed with the table, and not yet in this one
        return replace(
            rows, name=name, schema=LETTERS, letters=True, files=files, bytes=size, next=state.next
        )


def _mode(table: Table) -> Mode:
    mode = table.properties.get(MODE, "raw")
    known = {*LOG_MODES, "avro", "protobuf"}
    assert mode in known, f"table '{table.name()[-1]}' has no mode: {mode}"
    return "raw" if mode == "raw" else "json"  # the others have a column per field, as JSON has


def _holds(letters: Table | None, batch_id: str) -> bool:
    if letters is None:
        return False
    return any(properties_of(one).get(BATCH) == batch_id for one in letters.snapshots())


# -- the table's part


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
    name = table.name()[-1]
    if as_of.moment_ms is None:
        found = table.snapshot_by_id(as_of.snapshot_id or 0)
    else:
        found = table.snapshot_as_of_timestamp(as_of.moment_ms)
    if found is None:
        advice = "chronik.snapshots has those that there are"
        raise BadQuery(f"table '{name}' has nothing as of {as_of}: {advice}")
    return found


def files_at(table: Table, snapshot: Snapshot | None) -> tuple[tuple[str, ...], int]:
    """The files of a snapshot and their bytes."""
    if snapshot is None:
        return (), 0
    files = [task.file for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()]
    return tuple(one.file_path for one in files), sum(one.file_size_in_bytes for one in files)


def schema_at(table: Table, snapshot: Snapshot | None) -> pa.Schema:
    """The columns at a snapshot, in Arrow's small types."""
    if _mode(table) == "raw":
        return RAW
    number = None if snapshot is None else snapshot.schema_id
    schema = table.schema() if number is None else table.schemas()[number]
    return small_types(schema.as_arrow())


# -- the log's part


def hot_ranges(bootstrap: str, topic: str, state: State) -> Ranges:
    """What the log has after the table's offsets: committed records only."""
    with Cluster(bootstrap) as cluster:
        partitions = cluster.partitions([topic])
        ends = cluster.offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
        new = dict.fromkeys((one for one in partitions if one[1] not in state.next), EARLIEST)
        starts = cluster.offsets(new) if new else {}
    starts |= {one: state.next[one[1]] for one in partitions if one[1] in state.next}
    return {one: (starts[one], end) for one, end in sorted(ends.items()) if end > starts[one]}


def log_views(
    bootstrap: str, topics: Sequence[str], named: Collection[str], mode: Mode
) -> list[View]:
    """Topics that have no table: all of their log is hot."""
    found: dict[str, View] = {}
    for topic in (one for one in topics if table_name(one).lower() in named):
        name = table_name(topic)
        if name in found:
            raise BadQuery(f"'{name}' could be topic '{topic}' and topic '{found[name].topic}'")
        schema = RAW if mode == "raw" else None
        ranges = hot_ranges(bootstrap, topic, State())
        found[name] = View(name, topic, mode, schema, schema, ranges=ranges)
    return list(found.values())
