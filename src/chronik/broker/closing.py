"""A clean stop: every log synced, and as little written besides as the next start needs.

What a log lacks in its index, its epochs and its producers' snapshot, recovery finds in the batches
that follow. Where these are few, reading them takes no longer than reading those files would, and
thousands of small files need not be written while somebody waits for the stop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import NamedTuple

from chronik.broker.commit import GroupCommit
from chronik.broker.disk import Disk
from chronik.broker.partition import Partition
from chronik.model.limits import REREAD_BATCHES_MAX, SYNC_TOGETHER_LOGS_MIN
from chronik.storage.fs import Volume
from chronik.storage.operations import Checkpoint

log = logging.getLogger(__name__)

CLOSE_CHUNK = 64
"""Logs closed by one job of a disk thread."""


class _Close(NamedTuple):
    partition: Partition
    operation: Checkpoint
    write_producers: Callable[[], None] | None
    """None where the operation does nothing but sync."""

    @property
    def is_left(self) -> bool:
        """True while there is something to do in a disk thread."""
        return self.operation.sync or self.write_producers is not None


async def close_logs(
    partitions: Iterable[Partition],
    commit: GroupCommit,
    disk: Disk,
    volume: Volume | None = None,
    *,
    together_min: int = SYNC_TOGETHER_LOGS_MIN,
) -> None:
    """Afterwards each log is durable as a whole; OSError where one is not, after all were tried.

    With a volume, so many logs or more are synced by one call.
    """
    planned, errors = await _plan_all(partitions, commit)
    if volume is not None:
        await _sync_together(planned, disk, volume, together_min)
    done = [one for one in planned if not one.is_left]
    left = [one for one in planned if one.is_left]
    chunks = [left[i : i + CLOSE_CHUNK] for i in range(0, len(left), CLOSE_CHUNK)]
    found = await asyncio.gather(*(disk.run(partial(_execute, chunk)) for chunk in chunks))
    outcomes = [*(None for _ in done), *chain.from_iterable(found)]
    for one, outcome in zip([*done, *left], outcomes, strict=True):
        errors += _settle(one, outcome)
        commit.release(one.partition)
    if errors:
        raise errors[0]


async def _plan_all(
    partitions: Iterable[Partition], commit: GroupCommit
) -> tuple[list[_Close], list[Exception]]:
    """Nobody else touches the logs that are planned until they are released."""
    planned: list[_Close] = []
    errors: list[Exception] = []
    for partition in partitions:
        await commit.take(partition)
        try:
            one = None if partition.gone else _plan(partition)
        except OSError as error:
            errors.append(error)
            one = None
        if one is None:
            commit.release(partition)
        else:
            planned.append(one)
    return planned, errors


async def _sync_together(
    planned: list[_Close], disk: Disk, volume: Volume, together_min: int
) -> None:
    """One sync for all; where it fails nothing is known, and each log is yet to be synced."""
    unsynced = [one.operation for one in planned if one.operation.sync]
    if len(unsynced) < together_min:
        return
    paths = [one.segment.path for one in unsynced if one.segment is not None]
    try:
        await disk.run(partial(volume.sync, paths))
    except OSError as error:
        log.warning("the logs are synced one by one, together they could not be: %s", error)
        return
    for one in unsynced:
        one.sync = False


def _plan(partition: Partition) -> _Close | None:
    """What is to be done in a disk thread; None where nothing is."""
    operation = partition.log.checkpoint(closing=True)
    if not _is_brief(partition, operation):
        return _Close(partition, operation, partition.producers_writer(sync=False))
    operation.index = operation.epochs = None
    if operation.sync:
        return _Close(partition, operation, None)
    partition.log.apply(operation)
    return None


def _is_brief(partition: Partition, operation: Checkpoint) -> bool:
    """True where only a few batches are younger than the last checkpoint, which is still there."""
    log, active = partition.log, operation.segment
    if operation.cut or operation.sync_names or active is None or active.index is None:
        return False
    since = partition.checkpointed_at
    if since < 0 and active.base_offset == 0:
        since = 0  # never checkpointed: the batches tell everything
    if since < log.start_offset:
        return False  # the checkpoint's snapshot may have gone with what was deleted
    batches = active.index.batches_since(since)
    return batches is not None and batches <= REREAD_BATCHES_MAX


def _execute(chunk: list[_Close]) -> list[Exception | None]:
    """In a disk thread."""
    return [_executed(one) for one in chunk]


def _executed(one: _Close) -> Exception | None:
    try:
        one.operation.execute()
        if one.write_producers is not None:
            one.write_producers()
    except Exception as error:  # noqa: BLE001 - it travels to whoever closes
        return error
    return None


def _settle(one: _Close, outcome: Exception | None) -> list[Exception]:
    if outcome is not None:
        one.partition.log.abort(one.operation)
        return [outcome]
    one.partition.log.apply(one.operation)
    if one.write_producers is not None:
        one.partition.checkpointed_at = one.operation.end_offset
    return []
