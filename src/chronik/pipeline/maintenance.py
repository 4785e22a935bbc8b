"""Care for a table while ingest goes on: fewer files, fewer snapshots, no files without a table.

Each step is one commit by compare-and-swap, or deletes only what no snapshot names and is older
than any run that could still commit it. Compaction carries the offsets on, so that the newest
snapshot always says how far the table is.
"""

import contextlib
import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.fs
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from chronik.pipeline import dlq_table
from chronik.pipeline.files import FileWriter, Written
from chronik.pipeline.partitioning import Key
from chronik.pipeline.places import Access, access_in, located
from chronik.pipeline.warehouse import (
    BAD_FILES,
    CARRIED,
    Warehouse,
    marked_snapshots,
    properties_of,
    quiet,
    replace_files,
)

SMALL_FILE_BYTES = 32 * 1024 * 1024
GROUP_BYTES_MAX = 256 * 1024 * 1024
ORPHAN_AGE = datetime.timedelta(hours=24)
SNAPSHOT_AGE = datetime.timedelta(days=5)


@dataclass(frozen=True)
class Cared:
    """What one run of maintenance did to one table."""

    table: str
    compacted: int
    """Small files that became fewer larger ones."""
    expired: int
    deleted: int


def maintain(
    warehouse: Warehouse,
    name: str,
    now: datetime.datetime,
    *,
    snapshot_age: datetime.timedelta = SNAPSHOT_AGE,
    orphan_age: datetime.timedelta = ORPHAN_AGE,
) -> Cared:
    """Compaction, expiry, then deletion of what nothing refers to any more."""
    both = [warehouse.load(name), warehouse.load(name + dlq_table.SUFFIX)]
    tables = [table for table in both if table is not None]
    compacted = sum(compact(table) for table in tables)
    expired = sum(expire(table, now - snapshot_age) for table in tables)
    return Cared(name, compacted, expired, delete_orphans(tables, now - orphan_age))


# -- compaction


def compact(table: Table) -> int:
    """Joins the small files; the number of files that were replaced.

    Where ingest commits in between, the compaction gives way: it is done again at the next run.
    """
    table.refresh()
    small = [task.file for task in table.scan().plan_files()]
    small = [one for one in small if one.file_size_in_bytes < SMALL_FILE_BYTES]
    replaced = 0
    for group in groups(small):
        if len(group) > 1 and _replace(table, group):
            replaced += len(group)
    return replaced


def groups(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Files that become one, in the order of their names, up to `GROUP_BYTES_MAX` together.

    Only files of one partition of the table are joined.
    """
    found: list[list[DataFile]] = []
    sizes: dict[Key, int] = {}
    open_groups: dict[Key, list[DataFile]] = {}
    for one in sorted(files, key=lambda one: one.file_path):
        key = key_of(one)
        if key not in sizes or sizes[key] + one.file_size_in_bytes > GROUP_BYTES_MAX:
            sizes[key], open_groups[key] = 0, []
            found.append(open_groups[key])
        open_groups[key].append(one)
        sizes[key] += one.file_size_in_bytes
    return found


def key_of(file: DataFile) -> Key:
    """The partition of the table that a file belongs to."""
    values: Any = file.partition
    return tuple(values)


def _replace(table: Table, group: Sequence[DataFile]) -> bool:
    written = _joined(table, group)
    try:
        with quiet(), table.transaction() as transaction:
            replace_files(transaction, table, group, [written], _carried(table))
    except CommitFailedException:
        table.refresh()
        return False
    return True


def _joined(table: Table, group: Sequence[DataFile]) -> Written:
    """All rows of the files in one file; columns that an older file lacks are null."""
    access = access_in(table.io.properties)
    tables = [_read(one.file_path, access) for one in group]
    schema = max((one.schema for one in tables), key=len)
    writer = FileWriter(f"{table.location()}/data/compacted", "compacted", access)
    for one in tables:
        padded = pyarrow.concat_tables([schema.empty_table(), one], promote_options="default")
        for batch in padded.select(schema.names).to_batches():
            writer.write(batch)
    written = writer.close()
    assert written is not None
    assert written.rows == sum(one.record_count for one in group), "no row is left behind"
    return replace(written, partition=key_of(group[0]))


def _read(path: str, access: Access) -> pyarrow.Table:
    filesystem, inner = located(path, access)
    return pq.read_table(inner, filesystem=filesystem)


def _carried(table: Table) -> dict[str, str]:
    for snapshot in marked_snapshots(table):
        told = properties_of(snapshot)
        return {name: told[name] for name in CARRIED if name in told}
    return {}


# -- expiry


def expire(table: Table, before: datetime.datetime) -> int:
    """Forgets snapshots from before that time; never the newest, which holds the offsets."""
    table.refresh()
    count = len(table.snapshots())
    try:
        with quiet():
            table.maintenance.expire_snapshots().older_than(before).commit()
    except CommitFailedException:
        return 0
    table.refresh()
    return count - len(table.snapshots())


def delete_orphans(tables: Sequence[Table], before: datetime.datetime) -> int:
    """Deletes data files that no snapshot refers to and that are older than that time.

    The tables are one table and its dead letters, whose files are in the same folder.
    """
    access = access_in(tables[0].io.properties)
    filesystem, root = located(f"{tables[0].location()}/data", access)
    if filesystem.get_file_info(root).type == pyarrow.fs.FileType.NotFound:
        return 0
    # The listing comes first: a file that is committed after it is too new to be deleted.
    listed = filesystem.get_file_info(pyarrow.fs.FileSelector(root, recursive=True))
    known = {path for table in tables for path in referenced(table)}
    old = [one.path for one in listed if one.is_file and one.mtime and one.mtime < before]
    orphans = [path for path in old if path not in known]
    for path in orphans:
        with contextlib.suppress(FileNotFoundError):  # another maintenance was faster
            filesystem.delete_file(path)
    return len(orphans)


def referenced(table: Table) -> set[str]:
    """The paths of every data file of every snapshot, and of the dead letters that they name."""
    table.refresh()
    uris: set[str] = set()
    for snapshot in table.snapshots():
        uris.update(json.loads(properties_of(snapshot).get(BAD_FILES, "[]")))
        for manifest in snapshot.manifests(table.io):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            uris.update(entry.data_file.file_path for entry in entries)
    access = access_in(table.io.properties)
    return {located(uri, access)[1] for uri in uris}
