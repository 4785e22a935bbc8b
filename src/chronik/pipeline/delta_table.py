"""Delta tables in a folder, and the commit that holds the offsets, by delta-rs.

The offsets are Delta's application transactions (`txn` actions): one for each partition, its
version the next offset. They are part of the table's state and of its checkpoints, so that
compaction, vacuum and the cleaning of old log files by any engine leave them alone. The commit is
put-if-absent of the next version, and is never repeated without a look at the offsets.
"""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from chronik.pipeline.arrow_types import small_types
from chronik.pipeline.catalogs import WarehouseError
from chronik.pipeline.data_files import WrongFile
from chronik.pipeline.delta_names import FOLDER
from chronik.pipeline.files import Written
from chronik.pipeline.partitioning import PartitionBy
from chronik.pipeline.places import Access
from chronik.pipeline.warehouse import (
    ATTEMPTS_MAX,
    BAD_FILES,
    BATCH,
    FASTER,
    FIRST,
    MODE,
    NEXT,
    RANGES,
    TOPIC,
    ColumnConflict,
    Ranges,
    State,
    check_letters,
    check_ranges,
    check_spelling,
)

PARTITIONS = "chronik.partitions"
"""Application transaction: partitions that the table knows are below it."""
LETTERS = "chronik.dlq-batch"
"""Application transaction: the last batch that had dead letters."""
RECENT_COMMITS = 10
Told = tuple[Mapping[str, str], Mapping[str, int]]
"""What a commit says (for people and dead letters), and its application transactions."""


class NoDeltaError(Exception):
    """The package that knows Delta is not installed."""


def deltalake(module: str = "deltalake") -> Any:
    """The library, only where Delta is used."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise NoDeltaError(
            "Delta needs the package 'deltalake': pip install 'chronik[delta]'"
        ) from error


class DeltaWarehouse:
    """The Delta tables of a folder, or of a URI that delta-rs and Arrow both know."""

    def __init__(self, location: str | Path) -> None:
        self._library = deltalake()
        given = str(location)
        place = given if "://" in given else f"file://{Path(given).absolute()}"
        self._root = f"{place.rstrip('/')}/{FOLDER}"

    def open(
        self,
        name: str,
        schema: pa.Schema,
        properties: Mapping[str, str],
        partition_by: Sequence[tuple[str, PartitionBy]] = (),
    ) -> "DeltaTable":
        """The table; made if it does not exist."""
        if partition_by:
            raise WarehouseError("Delta has no partition transforms: --partition-by is Iceberg's")
        if (known := self.load(name)) is not None:
            return known
        errors = deltalake("deltalake.exceptions")
        try:
            self._library.DeltaTable.create(
                self._uri(name),
                _delta_schema(schema),
                configuration=dict(properties),
                raise_if_key_not_exists=False,
            )
        except errors.DeltaError:
            if self.load(name) is None:  # otherwise another ingester made it first
                raise
        made = self.load(name)
        assert made is not None
        return made

    def load(self, name: str) -> "DeltaTable | None":
        """A table by its name; None where there is none."""
        if not self._library.DeltaTable.is_deltatable(self._uri(name)):
            return None
        uri = self._uri(name)
        return DeltaTable(name, uri, self._library.DeltaTable(uri))

    def existing(self, topic: str, suffix: str = "") -> "DeltaTable | None":
        """The table of a topic, or with a suffix its dead letter table."""
        name = self.topics().get(topic)
        return None if name is None else self.load(name + suffix)

    def topics(self) -> dict[str, str]:
        """Topic to table, dead letter tables left out."""
        filesystem, root = pyarrow.fs.FileSystem.from_uri(self._root)
        selector = pyarrow.fs.FileSelector(root, allow_not_found=True)
        names = sorted(one.base_name for one in filesystem.get_file_info(selector))
        tables = [one for one in map(self.load, names) if one is not None]
        topical = [one for one in tables if one.properties.get(MODE, "dlq") != "dlq"]
        return {one.properties[TOPIC]: one.name for one in topical}

    def _uri(self, name: str) -> str:
        return f"{self._root}/{name}"


class DeltaTable:
    """One table as ingest sees it; `table` is delta-rs's."""

    def __init__(self, name: str, location: str, table: Any) -> None:
        self.name = name
        self.table = table
        self._location = location
        self._known: tuple[int, State] | None = None

    @property
    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.table.metadata().configuration
        return found

    @property
    def access(self) -> Access:
        return {}  # what delta-rs and Arrow find in the environment

    def folders(self, batch_id: str, letters: str) -> tuple[str, str]:
        """Of the batch's files and its dead letters: a table names files below itself only."""
        others = self._location.rpartition("/")[0]
        return f"{self._location}/data/{batch_id}", f"{others}/{letters}/data/{batch_id}"

    def schema(self) -> pa.Schema:
        """The columns in Arrow's small types."""
        return small_types(pa.schema(self.table.schema().to_arrow()))

    def files(self) -> list[str]:
        """The files of the newest version."""
        actions: Any = pa.table(self.table.get_add_actions(flatten=True))
        return [f"{self._location}/{path}" for path in actions.column("path").to_pylist()]

    def add_columns(self, new: Mapping[str, pa.DataType]) -> None:
        """New columns, all of them nullable; they stay where the commit that needed them fails."""
        errors = deltalake("deltalake.exceptions")
        for _ in range(ATTEMPTS_MAX):
            known = {one.name: one.type for one in self.schema()}
            check_spelling(self.name, list(known), new)
            missing = [(name, kind) for name, kind in new.items() if known.get(name) != kind]
            if not missing:
                return
            try:
                self.table.alter.add_columns(_delta_schema(pa.schema(missing)).fields)
            except errors.SchemaMismatchError as error:
                told = str(error).splitlines()[0]
                raise ColumnConflict(f"table '{self.name}': {told}: {FASTER}") from error
            except errors.CommitFailedError:
                pass  # then look at the table again
            self.table.update_incremental()
        raise WarehouseError(f"table '{self.name}' did not take the columns {', '.join(new)}")

    # -- state

    def state(self) -> State:
        """How far the table is, as of the version that is loaded."""
        version = self.table.version()
        if self._known is None or self._known[0] != version:
            self._known = version, self._state()
        return self._known[1]

    def _state(self) -> State:
        count = self._version(PARTITIONS)
        if count is None:
            return State()
        number = self._version(BATCH)
        batch = f"{self.table.metadata().id}:{number}"
        pending = self._version(LETTERS) == number
        commit = self._commit(batch, None if pending else RECENT_COMMITS)
        if pending and commit is None:
            raise WarehouseError(
                f"table '{self.name}': the log file of batch {batch} was deleted before its dead "
                "letters were in their table"
            )
        bad = tuple(json.loads(commit[BAD_FILES])) if pending and commit else ()
        first, following = (self._offsets(kind, count) for kind in (FIRST, NEXT))
        return State(batch, first, following, bad, commit["timestamp"] if commit else None)

    def _offsets(self, kind: str, count: int) -> dict[int, int]:
        found = {partition: self._version(f"{kind}.{partition}") for partition in range(count)}
        return {partition: at for partition, at in found.items() if at is not None}

    def _version(self, application: str) -> int | None:
        found: int | None = self.table.transaction_version(application)
        return found

    def _commit(self, batch: str, limit: int | None) -> Mapping[str, Any] | None:
        """What the commit of a batch said; others (compaction) may have followed it."""
        history: list[dict[str, Any]] = self.table.history(limit)
        return next((one for one in history if one.get(BATCH) == batch), None)

    # -- commit

    def commit(
        self,
        files: Sequence[Written],
        ranges: Ranges,
        batch_id: str,
        bad_files: Sequence[str] = (),
        counts: Mapping[str, str] | None = None,
    ) -> None:
        """Adds files that hold exactly the records of the ranges, and moves the offsets with them.

        Refused with `OffsetConflict` unless every range begins where the table ends.
        """

        before = self.state()

        def told() -> Told:
            state = self.state()
            check_ranges(state, ranges)
            check_letters(before, state)
            identity, number = self.table.metadata().id, _number(state.batch_id) + 1
            first = {p: start for p, (start, _) in ranges.items() if p not in state.first}
            known = max([0, *state.next, *ranges]) + 1
            versions = {BATCH: number, PARTITIONS: known}
            versions |= {f"{FIRST}.{partition}": start for partition, start in first.items()}
            versions |= {f"{NEXT}.{partition}": end for partition, (_, end) in ranges.items()}
            said = {BATCH: f"{identity}:{number}", RANGES: json.dumps(ranges)}
            said["chronik.folder"] = batch_id
            if bad_files:
                versions[LETTERS] = number
                said[BAD_FILES] = json.dumps(list(bad_files))
            return said | dict(counts or {}), versions

        self._append(files, told)

    def add_once(self, files: Sequence[str], batch_id: str) -> None:
        """Adds the dead letters of a batch, unless they are there.

        Batches are settled in their order; a table that was made again counts from one again.
        """
        identity = batch_id.rpartition(":")[0]

        def told() -> Told | None:
            if self.holds(batch_id):
                return None
            return {BATCH: batch_id}, {f"{BATCH}.{identity}": _number(batch_id)}

        if told() is not None:  # otherwise the files may be gone by now
            self._append([_counted(one) for one in files], told)

    def settled(self, batch_id: str) -> None:
        """A batch without records, and so without letters, after one whose letters are settled."""

        def told() -> Told | None:
            if self.state().batch_id != batch_id:
                return None
            identity, _, number = batch_id.rpartition(":")
            said = {BATCH: f"{identity}:{int(number) + 1}", RANGES: "{}"}
            return said, {BATCH: int(number) + 1}

        self._append([], told)

    def holds(self, batch_id: str) -> bool:
        """Whether a dead letter table has the letters of a batch."""
        identity = batch_id.rpartition(":")[0]
        return (self._version(f"{BATCH}.{identity}") or 0) >= _number(batch_id)

    def _append(self, files: Sequence[Written], told: Callable[[], Told | None]) -> None:
        """One version. `told` makes what it says from the newest table, at every attempt."""
        library, errors = deltalake(), deltalake("deltalake.exceptions")
        schema = self.schema()
        actions = [self._added(one, schema) for one in files]
        for attempt in range(ATTEMPTS_MAX):
            if (both := told()) is None:
                return
            properties = library.CommitProperties(
                custom_metadata=dict(both[0]),
                max_commit_retries=0,
                app_transactions=[library.Transaction(*one) for one in both[1].items()],
            )
            try:
                self.table.create_write_transaction(
                    actions, "append", self.table.schema(), commit_properties=properties
                )
            except errors.CommitFailedError:
                if attempt + 1 == ATTEMPTS_MAX:
                    raise
            else:
                self.table.update_incremental()
                return
            self.table.update_incremental()

    def _added(self, written: Written, schema: pa.Schema) -> Any:
        """The file as an action; its rows and columns are looked at again in its footer."""
        footer, info = _footer(written.path)
        if footer.num_rows != written.rows:
            raise WrongFile(f"{written.path}: {footer.num_rows} rows, {written.rows} were written")
        for column in small_types(footer.schema.to_arrow_schema()):
            if column.name not in schema.names or schema.field(column.name).type != column.type:
                raise WrongFile(f"{written.path}: column {column} is not the table's")
        root = f"{self._location}/"
        if not written.path.startswith(root):
            raise WrongFile(f"{written.path} is not below {root}")
        return deltalake("deltalake.transaction").AddAction(
            path=written.path.removeprefix(root),
            size=info.size,
            partition_values={},
            modification_time=int(info.mtime_ns // 1_000_000),
            data_change=True,
            stats=json.dumps(_statistics(footer)),
        )


def _delta_schema(schema: pa.Schema) -> Any:
    try:
        return deltalake().Schema.from_arrow(schema)
    except Exception as error:  # delta-rs has no type of its own for it
        told = str(error).splitlines()[0]
        raise WarehouseError(f"Delta has no such type as in {schema}: {told}") from error


def _number(batch_id: str) -> int:
    """Of a batch within its table; 0 where there was none."""
    return int(batch_id.rpartition(":")[2] or 0)


def _footer(path: str) -> tuple[pq.FileMetaData, Any]:
    filesystem, inner = pyarrow.fs.FileSystem.from_uri(path)
    with filesystem.open_input_file(inner) as stream:
        return pq.read_metadata(stream), filesystem.get_file_info(inner)


def _counted(path: str) -> Written:
    """A file whose writer is gone: what it says of itself is believed."""
    return Written(path, _footer(path)[0].num_rows)


def _statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """The rows, and the bounds of whole numbers (partition, offset), for pruning."""
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    kinds = {one.name: one.type for one in footer.schema.to_arrow_schema()}
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        if name not in kinds or not pa.types.is_integer(kinds[name]):
            continue
        found: list[Any] = [
            footer.row_group(group).column(number).statistics
            for group in range(footer.num_row_groups)
        ]
        if found and all(one is not None and one.has_min_max for one in found):
            low[name], high[name] = min(one.min for one in found), max(one.max for one in found)
    return {"numRecords": footer.num_rows, "minValues": low, "maxValues": high}
