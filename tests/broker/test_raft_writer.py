"""Writes of the metadata log: none is forgotten, whoever has stopped to wait for it."""

import asyncio
import errno
import logging

import pytest
from tests.broker.kit import StepDisk, run, turn

from chronik.broker.raft_writer import RaftWriter
from chronik.raft.core import Ready
from chronik.raft.messages import ConfState, HardState
from chronik.sim.disk import SimDisk
from chronik.storage.raft_store import RaftStore


class BrokenDisk(SimDisk):
    """Does not sync once it is told to be broken."""

    broken = False

    def fdatasync(self, file: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        super().fdatasync(file)


def ready(term: int) -> Ready:
    return Ready(HardState(term=term), (), None, (), (), (), None)


def writer_on(files: BrokenDisk) -> tuple[RaftWriter, StepDisk]:
    store = RaftStore.open(files, "/raft")
    store.bootstrap(ConfState(voters=(1,)))
    disk = StepDisk(asyncio.get_running_loop())
    return RaftWriter(disk, store), disk


def test_a_write_goes_on_when_its_caller_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        writer, disk = writer_on(BrokenDisk())
        saving = asyncio.ensure_future(writer.save(ready(2)))
        await turn()
        saving.cancel()
        settled = asyncio.ensure_future(writer.settled())
        await turn()
        assert saving.cancelled()
        assert not settled.done(), "the disk has not answered yet"
        disk.step()
        await settled

    run(scenario)
    assert caplog.text == ""


def test_a_write_that_fails_after_its_caller_was_cancelled_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        files = BrokenDisk()
        writer, disk = writer_on(files)
        saving = asyncio.ensure_future(writer.save(ready(2)))
        await turn()
        saving.cancel()
        await turn()
        files.broken = True
        disk.step()
        await writer.settled()

    with caplog.at_level(logging.ERROR):
        run(scenario)
    assert "the last write of the metadata log failed: [Errno 5]" in caplog.text


def test_a_failure_that_the_caller_knows_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        files = BrokenDisk()
        writer, disk = writer_on(files)
        files.broken = True
        saving = asyncio.ensure_future(writer.save(ready(2)))
        await turn()
        disk.step()
        with pytest.raises(OSError, match="Input/output error"):
            await saving
        await writer.settled()

    run(scenario)
    assert caplog.text == ""
