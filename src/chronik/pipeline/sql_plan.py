"""What a query reads: files of one snapshot per table, and the log from that snapshot's offsets on.

The plan is the same for every engine and needs neither Spark nor Java. Both parts of a view meet at
the offsets of one snapshot, so their union needs no deduplication.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa

from chronik.pipeline.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Cluster,
    TopicPartition,
    UnknownTopic,
)
from chronik.pipeline.decode import SCHEMA
from chronik.pipeline.sql_text import AsOf, BadQuery, names, system_names, without_time_travel
from chronik.pipeline.stored import Stored, StoredTables
from chronik.pipeline.stored_tables import stored_tables
from chronik.pipeline.warehouse import State, Warehouse, table_name

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
    stored = stored_tables(warehouse)
    tables = {one.lower(): one for one in stored}
    plain, past = without_time_travel(text, tables)
    named = names(plain)
    planner = _Planner(stored, bootstrap if as_of is None else None, as_of)
    views = [view for name in _topic_tables(stored) for view in planner.views(name, named)]
    for view, (name, when) in past.items():
        views += _Planner(stored, None, when).views(tables[name], {name}, view)
    known = list(tables.values())
    if bootstrap is not None and as_of is None:
        with Cluster(bootstrap) as cluster:
            topics = [one for one in cluster.topics() if table_name(one).lower() not in tables]
        views += log_views(bootstrap, topics, named - set(tables), mode)
        known += map(table_name, topics)
    return Plan(plain, views, sorted(system_names(text)), tuple(sorted(known)))


def _topic_tables(tables: Collection[str]) -> list[str]:
    return sorted(one for one in tables if not one.endswith(LETTERS_SUFFIX))


class _Planner:
    """Makes views of one warehouse at one time."""

    def __init__(
        self, tables: Mapping[str, StoredTables], bootstrap: str | None, as_of: AsOf | None
    ) -> None:
        self._tables, self._bootstrap, self._as_of = tables, bootstrap, as_of

    def views(self, name: str, named: Collection[str], view: str = "") -> list[View]:
        """The table's view and the one of its dead letters, where they are named."""
        wanted = {name.lower(), (name + LETTERS_SUFFIX).lower()} & set(named)
        if not wanted:
            return []
        if name.lower().endswith(LETTERS_SUFFIX):
            raise BadQuery(f"{name}: name the table itself; dead letters have no versions")
        stored = self._tables[name].at(name, self._as_of)
        if stored is None:
            return []
        rows = self._rows(stored, view or name)
        found = [rows] if name.lower() in wanted else []
        if len(wanted) > len(found) and rows.mode != "raw":
            found.append(self._letters(stored, rows))
        return found

    def _rows(self, stored: Stored, view: str) -> View:
        mode, state = _mode(stored), stored.state
        schema = RAW if mode == "raw" else stored.schema
        ranges = {}
        # What a registry describes cannot be read from the log without it: the table alone.
        if self._bootstrap is not None and stored.mode in LOG_MODES:
            ranges = hot_ranges(self._bootstrap, stored.topic, state)
        files, size = stored.files, stored.bytes
        return View(
            view, stored.topic, mode, schema, schema, False, files, size, ranges, state.next
        )

    def _letters(self, stored: Stored, rows: View) -> View:
        """The letters up to where the table is, then those of the log."""
        name, tables, state = stored.name + LETTERS_SUFFIX, self._tables[stored.name], stored.state
        letters = tables.at(name, None)
        files, size = ((), 0) if letters is None else (letters.files, letters.bytes)
        if state.bad_files and not tables.holds(name, state.batch_id):
            files += state.bad_files  # committed with the table, and not yet in this one
        return replace(
            rows, name=name, schema=LETTERS, letters=True, files=files, bytes=size, next=state.next
        )


def _mode(stored: Stored) -> Mode:
    known = {*LOG_MODES, "avro", "protobuf"}
    assert stored.mode in known, f"table '{stored.name}' has no mode: {stored.mode}"
    return "raw" if stored.mode == "raw" else "json"  # the others have columns too, as JSON has


# -- the log's part


def hot_ranges(bootstrap: str, topic: str, state: State) -> Ranges:
    """What the log has after the table's offsets: committed records only."""
    with Cluster(bootstrap) as cluster:
        try:
            partitions = cluster.partitions([topic])
        except UnknownTopic:
            return {}  # it was deleted, and the table outlives it
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
