"""The node-wide files from which a restart starts: recovery points, log starts, watermarks.

One file is written by one disk thread at a time: they have temporary names, and the later write
must win.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from chronik.broker.disk import Disk
from chronik.broker.partition import Partition
from chronik.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CorruptCheckpointError,
    read_offsets,
    write_offsets,
)
from chronik.storage.directory import log_name
from chronik.storage.fs import FileSystem

log = logging.getLogger(__name__)


def usable_offsets(fs: FileSystem, directory: str, kind: str) -> dict[str, int]:
    """What a start may build on; a damaged file is as good as none, and costs time only."""
    try:
        return read_offsets(fs, directory, kind)
    except CorruptCheckpointError as error:
        log.warning("%s: this start takes longer, the file is written anew", error)
        return {}


class Checkpoints:
    """Writes them."""

    def __init__(self, fs: FileSystem, directory: str, disk: Disk) -> None:
        self._fs = fs
        self._directory = directory
        self._disk = disk
        self._writing: asyncio.Future[None] | None = None

    async def write_points(self, partitions: Iterable[Partition]) -> None:
        """Up to where the logs are known to be synced, and where they start."""
        points: dict[str, int] = {}
        starts: dict[str, int] = {}
        for one in partitions:
            name = log_name(one.topic, one.index)
            points[name] = one.log.synced_offset
            starts[name] = one.log.start_offset
        await self._write({RECOVERY_POINTS: points, LOG_STARTS: starts})

    async def write_watermarks(self, partitions: Iterable[Partition]) -> None:
        """What is committed for sure: a replica that restarts need not ask what lies below."""
        found = {log_name(one.topic, one.index): one.state.high_watermark for one in partitions}
        await self._write({HIGH_WATERMARKS: found})

    async def _write(self, files: Mapping[str, Mapping[str, int]]) -> None:
        while self._writing is not None and not self._writing.done():
            # Also one that nobody waits for any more; where it fails, this one has what it had.
            await asyncio.wait((self._writing,))

        def write() -> None:
            for kind, offsets in files.items():
                write_offsets(self._fs, self._directory, kind, offsets)

        self._writing = self._disk.submit(write)
        await asyncio.shield(self._writing)
