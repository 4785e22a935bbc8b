"""Care for a Delta table while ingest goes on, by delta-rs: fewer files, none without a version.

The offsets are application transactions, which no compaction, vacuum or checkpoint touches. Where
ingest commits in between, a step gives way and is done at the next run.
"""

import datetime
import math
from typing import Any

from chronik.pipeline import dlq_table
from chronik.pipeline.delta_table import DeltaTable, DeltaWarehouse, deltalake
from chronik.pipeline.letters import settle_bad
from chronik.pipeline.maintenance import GROUP_BYTES_MAX, ORPHAN_AGE, SNAPSHOT_AGE, Cared


def maintain(
    warehouse: DeltaWarehouse,
    name: str,
    *,
    snapshot_age: datetime.timedelta = SNAPSHOT_AGE,
    orphan_age: datetime.timedelta = ORPHAN_AGE,
) -> Cared:
    """Compaction, old log files, then deletion of what no version of that age needs any more.

    Delta's vacuum knows one age: the longer of the two counts for all files.
    """
    table = warehouse.load(name)
    if table is None:
        return Cared(name, 0, 0, 0)
    settle(warehouse, table)
    both = [table, warehouse.load(name + dlq_table.SUFFIX)]
    tables = [one for one in both if one is not None]
    compacted = sum(compact(one) for one in tables)
    expired = sum(expire(one) for one in tables)
    deleted = sum(vacuum(one, max(snapshot_age, orphan_age)) for one in tables)
    return Cared(name, compacted, expired, deleted)


def settle(warehouse: DeltaWarehouse, table: DeltaTable) -> None:
    """No log file is needed for dead letters any more: the newest batch is one without them."""
    state = table.state()
    if state.bad_files:
        settle_bad(warehouse, table)
        table.settled(state.batch_id)


def compact(table: DeltaTable) -> int:
    """Joins small files; the number of files that were replaced."""
    errors = deltalake("deltalake.exceptions")
    try:
        done: dict[str, Any] = table.table.optimize.compact(target_size=GROUP_BYTES_MAX)
    except errors.CommitFailedError:
        done = {}
    table.table.update_incremental()
    return int(done.get("numFilesRemoved", 0))


def expire(table: DeltaTable) -> int:
    """Forgets versions that are older than the table's `delta.logRetentionDuration`."""
    before = len(table.table.history())
    table.table.create_checkpoint()
    table.table.cleanup_metadata()
    table.table.update_incremental()
    return before - len(table.table.history())


def vacuum(table: DeltaTable, age: datetime.timedelta) -> int:
    """Deletes files that no version needs since then, and those of dead runs from before then."""
    errors = deltalake("deltalake.exceptions")
    try:
        gone: list[str] = table.table.vacuum(
            retention_hours=math.ceil(age.total_seconds() / 3_600),
            enforce_retention_duration=False,
            dry_run=False,
            full=True,
        )
    except errors.CommitFailedError:
        gone = []
    table.table.update_incremental()
    return len(gone)
