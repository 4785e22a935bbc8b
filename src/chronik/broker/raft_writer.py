"""Writes of the metadata log's store, one at a time, in a disk thread.

A stop may cancel whoever waits for a write, never the write itself: `settled` waits for it, and
looks at what became of it, before the store is closed.
"""

import asyncio
import logging
from collections.abc import Callable

from chronik.broker.disk import Disk
from chronik.model.limits import METADATA_SAVE_RETRY_S
from chronik.raft.core import Ready
from chronik.raft.messages import Snapshot
from chronik.storage.raft_store import RaftStore

log = logging.getLogger(__name__)


class RaftWriter:
    """The only one who writes a store while its node runs."""

    def __init__(self, disk: Disk, store: RaftStore) -> None:
        self._disk = disk
        self._store = store
        self._writing: asyncio.Future[None] | None = None

    async def save(self, ready: Ready) -> None:
        """Nothing is decided on what is not durable: a full disk is waited for."""
        told = False
        while True:
            try:
                await self._write(
                    lambda: self._store.save(ready.hard_state, ready.entries, ready.snapshot)
                )
            except OSError as error:
                if self._store.is_failed:
                    # After a failed sync nobody knows what the disk has: only a restart reads it.
                    raise
                if not told:
                    log.error("cannot write the metadata log, trying on: %s", error)  # noqa: TRY400
                    told = True
                await asyncio.sleep(METADATA_SAVE_RETRY_S)
            else:
                return

    async def compact(self, taken: Snapshot) -> None:
        """Writes a snapshot and drops the entries that it holds."""
        await self._write(lambda: self._store.compact(taken))

    async def _write(self, work: Callable[[], None]) -> None:
        self._writing = self._disk.submit(work)
        try:
            await asyncio.shield(self._writing)
        except OSError:
            self._writing = None  # the caller knows of it
            raise
        self._writing = None

    async def settled(self) -> None:
        """Waits for a write whose caller was cancelled; the store may be closed after that."""
        if self._writing is None:
            return
        await asyncio.wait((self._writing,))
        error = self._writing.exception()
        if error is not None:
            # Nobody was told of what it held; the next start reads back what there is.
            log.error("the last write of the metadata log failed: %s", error)
