"""What a query reads: files of one snapshot per table, and the log from that snapshot's offsets on.

The plan is the same for every engine and needs neither Spark nor Java. Both parts of a view meet at
the offsets of one snapshot, so their union needs no deduplication.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, get_args

import pyarrow as pa

from chronik.pipeline import registry_rows
from chronik.pipeline.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Cluster,
    TopicPartition,
    UnknownTopic,
)
from chronik.pipeline.decode import SCHEMA
from chronik.pipeline.places import Access
from chronik.pipeline.registry import Registry
from chronik.pipeline.sql_text import (
    AsOf,
    BadQuery,
    names,
    sources,
    system_names,
    without_time_travel,
)
from chronik.pipeline.stored import Stored, StoredTables
from chronik.pipeline.stored_tables import stored_tables
from chronik.pipeline.warehouse import State, Warehouse, table_name

Mode = Literal["raw", "json"]
"""How a topic without a table is read."""
TableMode = Literal["raw", "json", "avro", "protobuf"]
Ranges = dict[TopicPartition, tuple[int, int]]
TABLE_MODES: Final = get_args(TableMode)
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
    mode: TableMode
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
    access: Access = field(default_factory=dict, repr=False)
    """How the store of the files is reached."""
    registry: Registry | None = None
    """Where the schemas of the log's part are, if it needs any."""

    @property
    def hot(self) -> int:
        """Offsets that are read from the log."""
        return sum(end - start for start, end in self.ranges.values())

    @property
    def reader(self) -> registry_rows.RegistryRows | None:
        """What makes rows of the log's records, where a registry explains them."""
        if self.registry is None:
            return None
        assert self.schema is not None
        assert self.fields is not None
        return registry_rows.RegistryRows(
            self.mode, self.fields, self.registry, self.schema, self.letters
        )


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
    registry: Registry | None = None,
) -> Plan:
    """The views that the text names.

    bootstrap: where the log is; None answers from the tables alone. as_of: every table as it was
    then, without the log. mode: how a topic that has no table yet is read. registry: where the
    schemas of the log's newest records are, if it is not where the tables say.
    """
    stored = stored_tables(warehouse)
    log = bootstrap if as_of is None else None
    topics = _topics(log)
    tables = {one.lower(): one for one in stored}
    aliases = _aliases(stored, text, topics)
    plain, past = without_time_travel(text, tables | aliases)
    named = names(plain)
    planner = _Planner(stored, log, as_of, registry)
    views = [view for name in _topic_tables(stored) for view in planner.views(name, named)]
    for alias, name in aliases.items():
        views += planner.renamed(name, named, alias)
    for view, (name, when) in past.items():
        table = (tables | aliases)[name]
        views += _Planner(stored, None, when, None).views(table, {table.lower()}, view)
    if log is not None:
        alone = [one for one in topics if table_name(one).lower() not in tables | aliases]
        views += log_views(log, alone, named - set(tables), mode)
    known = {*stored, *map(table_name, topics)}
    return Plan(plain, views, sorted(system_names(text)), tuple(sorted(known)))


def _topics(bootstrap: str | None) -> list[str]:
    if bootstrap is None:
        return []
    with Cluster(bootstrap) as cluster:
        return cluster.topics()


def _aliases(
    stored: Mapping[str, StoredTables], text: str, topics: Collection[str]
) -> dict[str, str]:
    """The names of topics in the text whose tables have another name, and those tables' names.

    Every table has to be asked for its topic, so that is done only where a name is no table's.
    """
    tables = {one.lower() for one in stored}
    of_topics = {table_name(one).lower() for one in topics}
    asked = {one.removesuffix(LETTERS_SUFFIX) for one in sources(text)}
    asked = (asked | (of_topics & names(text))) - tables
    found: dict[str, str] = {}
    if not asked:
        return found
    owners = {name: one for name, one in stored.items() if not name.endswith(LETTERS_SUFFIX)}
    tabled = {topic: name for one in set(owners.values()) for topic, name in one.topics().items()}
    for name in asked:
        claims = [one for one in {*tabled, *topics} if table_name(one).lower() == name]
        if not set(claims) & set(tabled):
            continue
        if len(claims) > 1:
            one, other = sorted(claims)[:2]
            raise BadQuery(f"'{name}' could be topic '{one}' and topic '{other}'")
        found[name] = tabled[claims[0]]
    return found


def _topic_tables(tables: Collection[str]) -> list[str]:
    return sorted(one for one in tables if not one.endswith(LETTERS_SUFFIX))


class _Planner:
    """Makes views of one warehouse at one time."""

    def __init__(
        self,
        tables: Mapping[str, StoredTables],
        bootstrap: str | None,
        as_of: AsOf | None,
        registry: Registry | None,
    ) -> None:
        self._tables, self._bootstrap, self._as_of = tables, bootstrap, as_of
        self._registry = registry

    def renamed(self, name: str, named: Collection[str], alias: str) -> list[View]:
        """The same views under another name, where that one is named."""
        both = {alias: name.lower(), alias + LETTERS_SUFFIX: (name + LETTERS_SUFFIX).lower()}
        found = self.views(name, {both[one] for one in both if one in named})
        return [replace(one, name=alias + one.name.removeprefix(name)) for one in found]

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
        if self._bootstrap is not None:
            ranges = hot_ranges(self._bootstrap, stored.topic, state)
        return View(
            view,
            stored.topic,
            mode,
            schema,
            schema,
            files=stored.files,
            bytes=stored.bytes,
            ranges=ranges,
            next=state.next,
            access=stored.access,
            registry=self._schemas(stored) if ranges and mode in registry_rows.MODES else None,
        )

    def _schemas(self, stored: Stored) -> Registry:
        """The registry that was given, or the one that the table was made with."""
        if self._registry is not None:
            return self._registry
        if stored.registry is None:
            raise BadQuery(
                f"the newest records of '{stored.name}' are {stored.mode.capitalize()}: --registry "
                "URL says where their schemas are; --cold leaves them out"
            )
        return Registry(stored.registry)

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


def _mode(stored: Stored) -> TableMode:
    known: dict[str, TableMode] = {one: one for one in TABLE_MODES}
    assert stored.mode in known, f"table '{stored.name}' has no mode: {stored.mode}"
    return known[stored.mode]


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
