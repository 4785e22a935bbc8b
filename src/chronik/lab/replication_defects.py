"""Defects of followers and of disks."""

from collections.abc import Callable
from typing import Any

from chronik.broker import replication
from chronik.broker.partition import Partition
from chronik.lab import faults
from chronik.lab.replacing import replace


def follower_refuses() -> None:
    """A follower knows the topics of its start: data of others comes before their metadata."""
    append = replication._Fetcher._append

    def refusing(self: Any, partition: Partition, data: Any, epoch: int) -> bool:
        if partition.opened_at_offset == 0:
            self._pause(partition)
            return False
        return append(self, partition, data, epoch)

    replace(replication._Fetcher, "_append", refusing)


def lost_fsync() -> None:
    """The disk says that it has synced a segment, and has not."""
    replace(faults.SyncedSizes, "fdatasync", lambda self, file: None)


def bit_flip() -> None:
    """The node is sound; a bit of its file is flipped by `run.py` while it runs."""


DEFECTS: dict[str, Callable[[], None]] = {
    "follower-refuses-data": follower_refuses,
    "lost-fsync": lost_fsync,
    "bit-flip": bit_flip,
}
