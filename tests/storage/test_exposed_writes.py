"""Writes in two steps: read by others before they are synced, and kept whatever the sync says."""

import errno
import random

import pytest
from tests.storage.support import (
    DIRECTORY,
    NOW,
    SMALL,
    append,
    appendable,
    batch,
    fill,
    joined,
    new_disk,
    open_log,
    read_all,
)

from chronik.sim.disk import SimDisk
from chronik.storage.errors import LogFailedError
from chronik.storage.log import Log
from chronik.storage.segment import LogConfig, Storage
from chronik.storage.write import Write

BIG = LogConfig()


def new_log(config: LogConfig = BIG) -> tuple[SimDisk, Log, list[bytes]]:
    """With a few synced batches in it."""
    disk = new_disk()
    disk.forgets_failed_syncs = True
    log = Log(Storage(disk), DIRECTORY, config, [], 0, 0)
    return disk, log, fill(log, 3)


def exposed(log: Log, *batches: bytes) -> Write:
    write = log.prepare([appendable(data) for data in batches], NOW)
    write.execute(sync=False)
    log.expose(write)
    return write


def failed(disk: SimDisk, log: Log, write: Write) -> None:
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        write.sync()
    log.abort(write)


def test_an_exposed_write_is_readable_and_not_yet_counted_as_synced() -> None:
    disk, log, made = new_log()
    new = batch(3, epoch=7)
    write = exposed(log, new)
    assert read_all(log) == joined([*made, new])
    assert (log.synced_offset, log.end_offset, log.epochs.latest) == (3, 4, 7)
    write.sync()
    log.apply(write)
    assert log.synced_offset == 4
    disk.crash(random.Random(1))
    assert read_all(open_log(disk)[0]) == joined([*made, new])


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_before_the_sync_takes_only_what_was_exposed(seed: int) -> None:
    disk, log, made = new_log()
    new = batch(3)
    exposed(log, new)
    disk.crash(random.Random(seed))
    assert read_all(open_log(disk, BIG)[0]) in {joined(made), joined([*made, new])}


@pytest.mark.parametrize("config", [BIG, SMALL])
def test_a_failed_sync_keeps_the_bytes_and_writes_the_same_ones_again(config: LogConfig) -> None:
    disk, log, made = new_log(config)
    new = [batch(3 + n, value=b"w" * 300) for n in range(5)]  # several segments, where small
    write = exposed(log, *new)
    failed(disk, log, write)
    assert read_all(log) == joined([*made, *new])
    assert log.synced_offset == 3
    for _ in range(2):
        failed(disk, log, log.retry())
    again = log.retry()
    again.sync()
    log.apply(again)
    assert log.synced_offset == log.end_offset == 8
    disk.crash(random.Random(2))
    assert read_all(open_log(disk, config)[0]) == joined([*made, *new])


def test_a_second_sync_alone_would_prove_nothing() -> None:
    """What the simulated disk is asked to do here is what makes the test above mean something."""
    disk, log, made = new_log()
    write = exposed(log, batch(3))
    failed(disk, log, write)
    with log.storage.files.pinned(write.parts[-1].segment.path) as file:
        disk.fdatasync(file)
    disk.crash(random.Random(3))
    assert read_all(open_log(disk, BIG)[0]) == joined(made)


def test_nothing_else_is_done_to_a_log_before_its_sync_is_repeated() -> None:
    disk, log, _ = new_log()
    failed(disk, log, exposed(log, batch(3)))
    for operation in (
        lambda: append(log, batch(4)),
        log.checkpoint,
        lambda: log.truncate_to(3),
        lambda: log.reset_to(9),
    ):
        with pytest.raises(LogFailedError):
            operation()
    write = log.retry()
    write.sync()
    log.apply(write)
    append(log, batch(4))
    assert log.synced_offset == 5


def test_a_failed_sync_that_covers_older_bytes_too_needs_a_recovery() -> None:
    disk, log, _ = new_log()
    append(log, batch(3), sync=False)
    failed(disk, log, exposed(log, batch(4)))
    assert log.failed


def test_a_write_whose_copy_fails_was_never_exposed_and_leaves_no_trace() -> None:
    disk, log, made = new_log()
    disk.fail("pwritev", errno.ENOSPC)
    write = log.prepare([appendable(batch(3))], NOW)
    with pytest.raises(OSError, match="space"):
        write.execute(sync=False)
    log.abort(write)
    assert read_all(log) == joined(made)
    append(log, batch(3, value=b"other"))
    assert log.end_offset == 4
