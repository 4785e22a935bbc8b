"""The warehouse: Iceberg tables in a folder, and the commit that holds the offsets.

The state of the pipeline is the table itself. A snapshot's properties say which offsets its files
hold and where the next ones begin, so files and offsets are committed in one step or not at all.
The catalog compares and swaps the table's metadata: of two ingesters that began at the same offset
one wins, and the other's files are in no snapshot.
"""

import contextlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Snapshot

from chronik.pipeline.arrow_types import small_types
from chronik.pipeline.catalogs import NAMESPACE, WarehouseError, catalog_of
from chronik.pipeline.data_files import described, footer_of
from chronik.pipeline.files import Written
from chronik.pipeline.partitioning import PartitionBy
from chronik.pipeline.places import Access, access_in

TOPIC = "chronik.topic"
MODE = "chronik.mode"
REGISTRY = "chronik.registry"
BATCH = "chronik.batch-id"
RANGES = "chronik.ranges"
NEXT = "chronik.next-offsets"
FIRST = "chronik.first-offsets"
PARTITION_BY = "chronik.partition-by"
ROWS = "chronik.rows"
BAD_ROWS = "chronik.bad-rows"
GAPS = "chronik.gaps"
BAD_FILES = "chronik.dlq-files"
CARRIED = (BATCH, NEXT, FIRST, BAD_FILES)
"""What a snapshot that adds no records (compaction) takes over from the one before it."""
ATTEMPTS_MAX = 20
_PROPERTIES = {
    # A repeated commit must look at the offsets again, so the library may not repeat it.
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}

Ranges = dict[int, tuple[int, int]]
"""Partition to (first offset, offset after the last)."""


class OffsetConflict(Exception):  # noqa: N818
    """The table does not end where the new records begin: someone else was faster."""


class ColumnConflict(OffsetConflict):
    """Someone else gave the table a column of that name and another type at the same time."""


FASTER = (
    "another ingester of this table was faster, and nothing of this batch is in it. One of them "
    "is enough: stop the other, or run this one again"
)


@dataclass(frozen=True)
class State:
    """How far a table has come; all of it is in the table."""

    batch_id: str = ""
    first: dict[int, int] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    bad_files: tuple[str, ...] = ()
    committed_ms: int | None = None


class Warehouse:
    """The tables in one folder (or of any catalog that pyiceberg knows, by its properties)."""

    def __init__(self, location: str | Path, catalog: Mapping[str, str] | None = None) -> None:
        self.location = str(location)
        self.catalog = catalog_of(self.location, catalog or {})

    def load(self, name: str) -> Table | None:
        """A table by its name; None where there is none."""
        try:
            return self.catalog.load_table((NAMESPACE, name))
        except NoSuchTableError:
            return None

    def create(
        self,
        name: str,
        schema: pa.Schema,
        properties: Mapping[str, str],
        partition_by: Sequence[tuple[str, PartitionBy]] = (),
    ) -> Table:
        """The table; made if it does not exist, partitioned by those of its columns."""
        if (known := self.load(name)) is not None:
            return known
        told = _PROPERTIES | dict(properties)
        try:
            with self.catalog.create_table_transaction(
                (NAMESPACE, name), schema=schema, properties=told
            ) as transaction:
                for column, by in partition_by:
                    with transaction.update_spec() as update:
                        update.add_field(column, by.iceberg, f"{column}_{by.transform}")
        except (TableAlreadyExistsError, CommitFailedException):
            pass  # another ingester made it first
        return self.catalog.load_table((NAMESPACE, name))

    def open(
        self,
        name: str,
        schema: pa.Schema,
        properties: Mapping[str, str],
        partition_by: Sequence[tuple[str, PartitionBy]] = (),
    ) -> "IcebergTable":
        """The same, as ingest sees it."""
        return IcebergTable(self.create(name, schema, properties, partition_by))

    def of_topic(self, topic: str) -> Table | None:
        """The table of a topic, by whatever name it has."""
        table = self.load(table_name(topic))
        if table is not None and table.properties.get(TOPIC) == topic:
            return table
        name = self.topics().get(topic)
        return None if name is None else self.load(name)

    def existing(self, topic: str, suffix: str = "") -> "IcebergTable | None":
        """The table of a topic, or its dead letter table, as ingest sees it."""
        table = self.of_topic(topic)
        if table is not None and suffix:
            table = self.load(table.name()[-1] + suffix)
        return None if table is None else IcebergTable(table)

    def names(self) -> list[str]:
        """Every table."""
        return sorted(name[-1] for name in self.catalog.list_tables(NAMESPACE))

    def topics(self) -> dict[str, str]:
        """Topic to table, dead letter tables left out."""
        found = {}
        for name in self.names():
            table = self.load(name)
            if table is not None and table.properties.get(MODE, "dlq") != "dlq":
                found[table.properties[TOPIC]] = name
        return found


def table_name(topic: str) -> str:
    """The table of a topic: SQL has other uses for dots and dashes."""
    return topic.replace(".", "_").replace("-", "_")


# -- state


def marked_snapshots(table: Table) -> Iterator[Snapshot]:
    """The snapshots that name their batch, the newest first, along the table's ancestors only."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        if BATCH in properties_of(snapshot):
            yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """What the snapshot says beside its numbers."""
    return dict(snapshot.summary.additional_properties) if snapshot.summary else {}


def state_of(table: Table) -> State:
    """How far the table is."""
    for snapshot in marked_snapshots(table):
        told = properties_of(snapshot)
        return State(
            told[BATCH],
            _by_partition(told.get(FIRST, "{}")),
            _by_partition(told.get(NEXT, "{}")),
            tuple(json.loads(told.get(BAD_FILES, "[]"))),
            snapshot.timestamp_ms,
        )
    return State()


def _by_partition(text: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in json.loads(text).items()}


def data_files(table: Table) -> list[str]:
    """The files of the newest snapshot."""
    return [task.file.file_path for task in table.scan().plan_files()]


# -- commit


def commit_records(
    table: Table,
    files: Sequence[str | Written],
    ranges: Ranges,
    batch_id: str,
    bad_files: Sequence[str] = (),
    counts: Mapping[str, str] | None = None,
) -> Table:
    """Adds files that hold exactly the records of the ranges, and moves the offsets with them.

    Refused with `OffsetConflict` unless every range begins where the table ends. `bad_files` are
    named in the same commit, so that the dead letter table can be completed after a crash.
    """

    before = state_of(table)

    def told(fresh: Table) -> dict[str, str]:
        state = state_of(fresh)
        check_ranges(state, ranges)
        check_letters(before, state)
        first = {p: start for p, (start, _) in ranges.items()} | state.first
        following = state.next | {p: end for p, (_, end) in ranges.items()}
        return {
            BATCH: batch_id,
            RANGES: json.dumps(ranges),
            FIRST: json.dumps(first),
            NEXT: json.dumps(following),
            BAD_FILES: json.dumps(list(bad_files)),
            **(counts or {}),
        }

    return add_files(table, files, told)


def check_ranges(state: State, ranges: Ranges) -> None:
    """Raises where a range leaves a hole, or would take an offset back."""
    for partition, (start, end) in ranges.items():
        expected = state.next.get(partition, start)
        if start != expected or end < start:
            raise OffsetConflict(
                f"partition {partition}: the table ends at offset {expected}, the new records are "
                f"[{start}, {end}): {FASTER}"
            )


def check_letters(before: State, state: State) -> None:
    """Raises where the commit would hide dead letters that another ingester may not have settled.

    Those of `before` are settled: that is done before a batch is written.
    """
    if state.bad_files and state.batch_id != before.batch_id:
        raise OffsetConflict(f"another ingester committed bad records in between: {FASTER}")


def check_spelling(table: str, known: Sequence[str], new: Mapping[str, pa.DataType]) -> None:
    """Raises where a column came meanwhile that differs in case only: engines see one column."""
    spelled = {one.lower(): one for one in known}
    for name in new:
        if spelled.get(name.lower(), name) != name:
            raise ColumnConflict(f"table '{table}' has a column {spelled[name.lower()]}: {FASTER}")


def add_files(
    table: Table, files: Sequence[str | Written], told: Callable[[Table], Mapping[str, str]]
) -> Table:
    """One snapshot. `told` makes its properties from the newest table, at every attempt."""
    written = [_counted(table, one) if isinstance(one, str) else one for one in files]
    for attempt in range(ATTEMPTS_MAX):
        properties = dict(told(table))
        try:
            with quiet(), table.transaction() as transaction:
                replace_files(transaction, table, [], written, properties)
        except CommitFailedException:
            if attempt + 1 == ATTEMPTS_MAX:
                raise
            table.refresh()
        else:
            return table
    raise AssertionError("unreachable")


def replace_files(
    transaction: Transaction,
    table: Table,
    old: Sequence[DataFile],
    new: Sequence[Written],
    told: Mapping[str, str],
) -> None:
    """Part of a transaction: a snapshot with the new files and without the old ones."""
    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:  # The files have names, Iceberg goes by numbers.
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    update = transaction.update_snapshot(snapshot_properties=dict(told))
    with update.overwrite() if old else update.fast_append() as snapshot:
        for one in old:
            snapshot.delete_data_file(one)
        for written in new:
            snapshot.append_data_file(described(table.io, metadata, written))


def _counted(table: Table, path: str) -> Written:
    """A file whose writer is gone: what it says of itself is believed."""
    return Written(path, footer_of(table.io, path).num_rows)


class IcebergTable:
    """One table as ingest sees it (`tables.IngestTable`); `table` is pyiceberg's."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def name(self) -> str:
        return self.table.name()[-1]

    @property
    def properties(self) -> Mapping[str, str]:
        return self.table.properties

    @property
    def access(self) -> Access:
        return access_in(self.table.io.properties)

    def folders(self, batch_id: str, _letters: str) -> tuple[str, str]:
        folder = f"{self.table.location()}/data/{batch_id}"
        return folder, folder

    def schema(self) -> pa.Schema:
        return small_types(self.table.schema().as_arrow())

    def files(self) -> list[str]:
        return data_files(self.table)

    def state(self) -> State:
        return state_of(self.table)

    def add_columns(self, new: Mapping[str, pa.DataType]) -> None:
        """New columns; repeated where another ingester changed the table in between."""
        for _ in range(ATTEMPTS_MAX if new else 0):
            try:
                with quiet(), self.table.update_schema() as update:
                    update.union_by_name(pa.schema(list(new.items())))
            except CommitFailedException:
                self.table.refresh()
                check_spelling(self.name, self.schema().names, new)
            except ValidationError as error:  # "cannot change column type"
                raise ColumnConflict(f"table '{self.name}': {error}: {FASTER}") from error
            else:
                return
        if new:
            raise WarehouseError(f"table '{self.name}' did not take the columns {', '.join(new)}")

    def commit(
        self,
        files: Sequence[Written],
        ranges: Ranges,
        batch_id: str,
        bad_files: Sequence[str] = (),
        counts: Mapping[str, str] | None = None,
    ) -> None:
        commit_records(self.table, files, ranges, batch_id, bad_files, counts)

    def add_once(self, files: Sequence[str], batch_id: str) -> None:
        def told(fresh: Table) -> dict[str, str]:
            if any(properties_of(one).get(BATCH) == batch_id for one in fresh.snapshots()):
                raise OffsetConflict("the batch is already there")
            return {BATCH: batch_id}

        with contextlib.suppress(OffsetConflict):
            told(self.table)  # the files may be gone by now
            add_files(self.table, files, told)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """pyiceberg warns of things that are as intended (a name mapping that it sets, and so on)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
