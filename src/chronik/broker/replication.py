"""Followers pull: one fetcher per leader, one long poll for all partitions that follow it.

A fetcher asks from what its own disk has, so that asking is acknowledging. The leader answers when
there is data or when a watermark moved, and what it says is taken over batch by batch, bytes
unchanged. Where the logs differ the leader names the point (KIP-595's diverging epoch) and the
follower cuts its log there before it goes on (`mending.py`).

From an answer to the next request there is no task and no timer: where nothing is synced, both are
in one turn of the event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from chronik.broker.asking import Asked, Asking, Key
from chronik.broker.commit import GroupCommit
from chronik.broker.disk import Disk
from chronik.broker.mending import begin_anew, cut, still_fits
from chronik.broker.partition import Partition
from chronik.broker.peering import Message, PeerApi, Peers, PeerUnavailableError
from chronik.model.errors import ErrorCode
from chronik.wire.apis import ApiKey
from chronik.wire.codec import WireError
from chronik.wire.records import LENGTH_OVERHEAD, batch_crc, scan
from chronik.wire.replica_fetch import (
    FetchAnswer,
    Fetched,
    read_fetch_answer,
    write_replica_fetch,
)

FETCH_VERSION = 17
ANSWER_TIMEOUT_S = 5.0
BACKOFF_S = 0.1
_FETCH = ApiKey.FETCH
_NONE = ErrorCode.NONE
_OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE

log = logging.getLogger(__name__)


class Replication:
    """The fetchers of a node; partitions come and go as their roles change."""

    def __init__(
        self,
        node_id: int,
        peers: Peers,
        commit: GroupCommit,
        disk: Disk,
        tasks: asyncio.TaskGroup,
        broker_epoch: Callable[[], int],
    ) -> None:
        self.node_id = node_id
        self.broker_epoch = broker_epoch
        self.peers = peers
        self.commit = commit
        self.disk = disk
        self.tasks = tasks
        self._fetchers: dict[int, _Fetcher] = {}
        self._leaders: dict[Key, int] = {}

    def role_changed(self, partition: Partition) -> None:
        """Follows the partition's leader, or nobody."""
        key = (partition.topic_id, partition.index)
        leader = partition.leader_id
        if leader == self.node_id or partition.state.is_leader:
            leader = -1
        former = self._leaders.pop(key, -1)
        if former >= 0 and former != leader:
            self._fetchers[former].remove(key)
        if leader >= 0:
            self._leaders[key] = leader
            self._fetcher(leader).add(key, partition)

    def stop(self) -> None:
        """Ends every fetcher."""
        for fetcher in self._fetchers.values():
            fetcher.stop()

    def lag(self) -> int:
        """Partitions that follow."""
        return len(self._leaders)

    def _fetcher(self, leader: int) -> "_Fetcher":
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = _Fetcher(self, leader)
        return fetcher


class _Fetcher:
    """One leader: its partitions, the fetch session with it, the poll that is out."""

    def __init__(self, owner: Replication, leader: int) -> None:
        self._owner = owner
        self._leader = leader
        self._asking = Asking()
        self._loop = asyncio.get_running_loop()
        self._is_under_way = False
        """A request is out, its answer is being taken, or it is about to be sent."""
        self._open = 0
        """What of an answer is not settled yet: writes, and the tasks below."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._nudging: asyncio.Handle | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._stopped = False

    def add(self, key: Key, partition: Partition) -> None:
        """Follows this partition too, or anew."""
        self._asking.add(key, partition)
        if self._nudging is None:
            self._nudging = self._loop.call_soon(self._added)  # once for all that come together

    def _added(self) -> None:
        self._nudging = None
        if self._is_under_way:
            self._nudge()
        else:
            self._ask()

    def _nudge(self) -> None:
        """The poll that is out does not know of a partition: have it answered now."""
        self._resume = None
        if self._asking.session_id:
            session_id = self._asking.session_id.to_bytes(4, "big")
            self._owner.peers.post(Message(self._leader, PeerApi.NUDGE, session_id))

    def remove(self, key: Key) -> None:
        """Follows it no longer."""
        self._asking.remove(key)

    def stop(self) -> None:
        """Ends."""
        self._stopped = True
        for timer in (self._again, self._nudging, self._resume):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()

    # -- asking

    def _ask(self) -> None:
        self._again = None
        asking, now_s = self._asking, self._loop.time()
        self._is_under_way = bool(asking.partitions) and not self._stopped
        if not self._is_under_way:
            return
        if asking.all_paused(now_s):
            self._ask_later()
            return
        owner = self._owner
        request = asking.request(owner.node_id, owner.broker_epoch(), now_s)
        body = write_replica_fetch(FETCH_VERSION, request)
        owner.peers.request(
            self._leader, _FETCH, FETCH_VERSION, [body], ANSWER_TIMEOUT_S, self._answered
        )

    def _ask_later(self) -> None:
        if not self._stopped:
            self._again = self._loop.call_later(BACKOFF_S, self._ask)

    def _answered(self, answer: memoryview | PeerUnavailableError) -> None:
        if self._stopped:
            return
        try:
            if isinstance(answer, PeerUnavailableError):
                self._begin_again()
            else:
                self._take(read_fetch_answer(FETCH_VERSION, answer))
        except WireError as error:
            log.error("node %d: its answer is malformed: %s", self._leader, error)  # noqa: TRY400
            self._begin_again()
        except Exception as error:  # noqa: BLE001 - an invariant is broken: the node ends
            self._owner.tasks.create_task(_raise(error))

    def _begin_again(self) -> None:
        self._asking.new_session()
        self._ask_later()

    # -- taking what came

    def _take(self, answer: FetchAnswer) -> None:
        error_code, session_id, partitions = answer
        if error_code:
            self._begin_again()
            return
        asking = self._asking
        asking.answered(session_id)
        self._open = 1
        written = []
        for data in partitions:
            topic_id, index, code, _, _, diverging, records = data
            partition, asked = asking.told((topic_id, index))
            if partition is None or asked is None:
                continue
            if not still_fits(partition, asked):
                if partition.is_unsynced:
                    self._pause(partition)  # its own disk must take what it has first
                continue
            if diverging[1] >= 0 or code == _OUT_OF_RANGE:
                self._spawn(self._mend(partition, data, asked))
            elif code:
                self._pause(partition)
            elif records and self._append(partition, data, asked[0]):
                written.append(partition)
            else:
                self._leader_says(partition, data, asked[0])
        if written:
            self._owner.commit.write(written)
        self._settled()

    def _settled(self) -> None:
        """One thing less to wait for; after the last, asking acknowledges all of it."""
        self._open -= 1
        if not self._open:
            self._ask()

    def _append(self, partition: Partition, data: Fetched, epoch: int) -> bool:
        """Takes the batches over; the rest of the answer counts when the disk has them."""
        state, records = partition.state, data.records
        appended = False
        partition.counters.replication_bytes_in += len(records)
        for position, header in scan(records):
            base_offset = header.base_offset
            if base_offset < state.log_end:
                continue  # the batch that holds the offset asked for may begin before it
            batch = records[position : position + header.length + LENGTH_OVERHEAD]
            if batch_crc(batch) != header.crc:
                log.error(
                    "%s-%d: node %d sent a damaged batch at offset %d; it is asked for again",
                    partition.topic,
                    partition.index,
                    self._leader,
                    base_offset,
                )
                self._pause(partition)
                break
            partition.take_over(batch, header)
            appended = True
        if appended:
            self._open += 1
            durable = partial(self._durable, partition, data, epoch)
            partition.durable_waiters.add(state.log_end, durable)
        return appended

    def _durable(self, partition: Partition, data: Fetched, epoch: int, code: ErrorCode) -> None:
        if code is not _NONE:
            self._pause(partition)
        self._leader_says(partition, data, epoch)
        self._settled()

    def _leader_says(self, partition: Partition, data: Fetched, epoch: int) -> None:
        state = partition.state
        if state.is_leader or state.leader_epoch != epoch:
            return
        partition.leader_says(data.high_watermark, data.log_start_offset)
        if state.log_start > partition.log.start_offset and partition.has_directory:
            self._spawn(self._advance_start(partition))

    # -- what takes longer

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._stopped:
            work.close()
            return
        self._open += 1
        task = self._owner.tasks.create_task(self._settle_after(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle_after(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        self._settled()

    async def _advance_start(self, partition: Partition) -> None:
        """Durable here too: as a leader, this replica must not bring records back."""
        try:
            await self._owner.commit.operate(
                partition, lambda: partition.log.advance_start(partition.state.log_start)
            )
        except OSError as error:
            self._failed(partition, error)

    async def _mend(self, partition: Partition, data: Fetched, asked: Asked) -> None:
        owner = self._owner
        try:
            if data.diverging_epoch.end_offset >= 0:
                done = await cut(partition, data.diverging_epoch, asked, owner.commit, owner.disk)
            else:
                start = data.log_start_offset
                done = await begin_anew(partition, start, asked, owner.commit, owner.disk)
        except OSError as error:
            self._failed(partition, error)
        else:
            if not done:
                self._pause(partition)

    def _failed(self, partition: Partition, error: OSError) -> None:
        log.error("%s-%d: %s", partition.topic, partition.index, error)
        self._pause(partition)

    def _pause(self, partition: Partition) -> None:
        """The leader does not serve it now; the metadata will tell more."""
        key = (partition.topic_id, partition.index)
        if key in self._asking.partitions and not self._stopped:
            if self._resume is None:
                # By then a poll without this partition may be out.
                self._resume = self._loop.call_later(BACKOFF_S + 0.01, self._nudge)
            self._asking.pause(key, self._loop.time() + BACKOFF_S)


async def _raise(error: Exception) -> None:
    raise error
