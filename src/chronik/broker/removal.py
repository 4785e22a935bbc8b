"""Directories of replicas that are gone: removed in a disk thread, once nothing else is on them."""

import asyncio
import logging

from chronik.broker.commit import GroupCommit
from chronik.broker.disk import Disk
from chronik.broker.partition import Partition
from chronik.storage.directory import delete_log_directory, log_name
from chronik.storage.segment import Storage

log = logging.getLogger(__name__)


class Removals:
    """What is being removed; nothing waits for it but a namesake."""

    def __init__(self, storage: Storage, disk: Disk, commit: GroupCommit) -> None:
        self._storage = storage
        self._disk = disk
        self._commit = commit
        self._under_way: dict[str, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        """Directories that are not gone yet."""
        return len(self._under_way)

    def hold_back(self, partition: Partition) -> None:
        """Where a deleted topic of this name still has the directory, writing waits for its end."""
        removal = self._under_way.get(log_name(partition.topic, partition.index))
        if removal is not None:
            partition.busy = True
            removal.add_done_callback(lambda _: self._commit.release(partition))

    def remove(self, partition: Partition) -> None:
        """Removes the bytes once no operation is on them."""
        name = log_name(partition.topic, partition.index)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way[name] = done

        def start(_: object = None) -> None:
            self._disk.start(work, finish)

        def work() -> None:
            if partition.has_directory:
                unique_id = partition.topic_id.hex()
                delete_log_directory(self._storage, partition.log.directory, unique_id)

        def finish(outcome: BaseException | None) -> None:
            if isinstance(outcome, BaseException):
                log.error("cannot remove %s: %s; it is removed at the next start", name, outcome)
            if self._under_way.get(name) is done:
                del self._under_way[name]
            done.set_result(None)
            self._commit.release(partition)  # whoever still waits for a turn finds it gone

        if partition.busy:  # with the disk, or waiting for the removal of an earlier namesake
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            turn.add_done_callback(start)
            partition.turns.append(turn)
        else:
            partition.busy = True
            start()
