"""Followers pull: one fetcher per leader, one long poll for all partitions that follow it.

A fetcher asks from what its own disk has, so that asking is acknowledging. The leader answers when
there is data or when a watermark moved, and what it says is taken over batch by batch, bytes
unchanged. Where the logs differ the leader names the point (KIP-595's diverging epoch) and the
follower cuts its log there before it goes on.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from chronik.broker.asking import Asked, Asking, Key
from chronik.broker.commit import GroupCommit
from chronik.broker.disk import Disk
from chronik.broker.opening import rebuilt_producers
from chronik.broker.partition import Partition
from chronik.broker.peering import Message, PeerApi, Peers, PeerUnavailableError
from chronik.model.errors import ErrorCode
from chronik.storage.operations import Reset, Truncation
from chronik.wire.apis import ApiKey
from chronik.wire.codec import WireError, decode, encode
from chronik.wire.messages.fetch import FetchResponse, PartitionData, ReplicaState
from chronik.wire.records import batch_crc, scan

FETCH_VERSION = 17
ANSWER_TIMEOUT_S = 5.0
BACKOFF_S = 0.1

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
        self._tasks = tasks
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
            fetcher = self._fetchers[leader] = _Fetcher(self, leader, self._tasks)
        return fetcher


class _Fetcher:
    """One leader: its partitions, the fetch session with it, the loop."""

    def __init__(self, owner: Replication, leader: int, tasks: asyncio.TaskGroup) -> None:
        self._owner = owner
        self._leader = leader
        self._asking = Asking()
        self._resume: asyncio.TimerHandle | None = None
        self._wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.task = tasks.create_task(self._run())

    def add(self, key: Key, partition: Partition) -> None:
        """Follows this partition too, or anew."""
        self._asking.add(key, partition)
        self._wanted.set()
        self._nudge()

    def _nudge(self) -> None:
        """The poll that is out does not know of a partition: have it answered now."""
        self._resume = None
        if self._asking.session_id:
            session_id = self._asking.session_id.to_bytes(4, "big")
            self._owner.peers.post(Message(self._leader, PeerApi.NUDGE, session_id))

    def stop(self) -> None:
        """Ends."""
        self.task.cancel()
        if self._resume is not None:
            self._resume.cancel()

    def remove(self, key: Key) -> None:
        """Follows it no longer."""
        self._asking.remove(key)

    async def _run(self) -> None:
        asking = self._asking
        while True:
            if not asking.partitions:
                self._wanted.clear()
                await self._wanted.wait()
            if asking.all_paused(self._loop.time()):
                await asyncio.sleep(BACKOFF_S)
                continue
            try:
                answer = await self._fetch()
            except PeerUnavailableError:
                asking.new_session()
                await asyncio.sleep(BACKOFF_S)
                continue
            await self._take(answer)

    # -- asking

    async def _fetch(self) -> FetchResponse:
        owner = self._owner
        me = ReplicaState(replica_id=owner.node_id, replica_epoch=owner.broker_epoch())
        request = self._asking.request(me, self._loop.time())
        body = encode(request, FETCH_VERSION)
        answer = await owner.peers.call(
            self._leader, ApiKey.FETCH, FETCH_VERSION, [body], ANSWER_TIMEOUT_S
        )
        try:
            return decode(FetchResponse, FETCH_VERSION, answer)
        except WireError as error:
            raise PeerUnavailableError(f"its answer is malformed: {error}", sent=True) from error

    # -- taking what came

    async def _take(self, answer: FetchResponse) -> None:
        if answer.error_code:
            self._asking.new_session()
            await asyncio.sleep(BACKOFF_S)
            return
        self._asking.answered(answer.session_id)
        written = []
        for topic in answer.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                partition, asked = self._asking.told(key)
                if partition is not None and asked is not None and _still(partition, asked):
                    written.append(self._take_partition(partition, data, asked))
        if written:
            await asyncio.gather(*written)

    async def _take_partition(
        self, partition: Partition, data: PartitionData, asked: Asked
    ) -> None:
        try:
            if data.diverging_epoch.end_offset >= 0:
                await self._cut(partition, data, asked)
            elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._begin_anew(partition, data.log_start_offset, asked)
            elif data.error_code:
                self._pause(partition)
            else:
                await self._append(partition, data, asked[1])
        except OSError as error:
            log.error("%s-%d: %s", partition.topic, partition.index, error)  # noqa: TRY400
            self._pause(partition)

    def _pause(self, partition: Partition) -> None:
        """The leader does not serve it now; the metadata will tell more."""
        key = (partition.topic_id, partition.index)
        if key in self._asking.partitions:
            if self._resume is None:
                # By then a poll without this partition may be out.
                self._resume = self._loop.call_later(BACKOFF_S + 0.01, self._nudge)
            self._asking.pause(key, self._loop.time() + BACKOFF_S)

    async def _append(self, partition: Partition, data: PartitionData, epoch: int) -> None:
        state = partition.state
        records = memoryview(data.records or b"")
        appended = False
        partition.counters.replication_bytes_in += len(records)
        for position, header in scan(records):
            batch = records[position : position + header.size]
            if header.base_offset < state.log_end:
                continue  # the batch that holds the offset asked for may begin before it
            if batch_crc(batch) != header.crc:
                log.error(
                    "%s-%d: node %d sent a damaged batch at offset %d; it is asked for again",
                    partition.topic,
                    partition.index,
                    self._leader,
                    header.base_offset,
                )
                self._pause(partition)
                break
            partition.take_over(batch, header)
            appended = True
        if appended:
            await self._durable(partition)
        if not state.is_leader and state.leader_epoch == epoch:
            partition.leader_says(data.high_watermark, data.log_start_offset)
            if state.log_start > partition.log.start_offset and partition.has_directory:
                # Durable here too: as a leader, this replica must not bring records back.
                await self._owner.commit.operate(
                    partition, lambda: partition.log.advance_start(state.log_start)
                )

    async def _durable(self, partition: Partition) -> None:
        done: asyncio.Future[ErrorCode] = self._loop.create_future()
        partition.durable_waiters.add(partition.state.log_end, partial(_resolve, done))
        self._owner.commit.add(partition)
        code = await done
        if code is not ErrorCode.NONE:
            self._pause(partition)

    async def _cut(self, partition: Partition, data: PartitionData, asked: Asked) -> None:
        """Cuts the log where the leader's differs from it."""
        diverging, log_, state = data.diverging_epoch, partition.log, partition.state
        own_epoch, own_end = log_.end_offset_for_epoch(diverging.epoch)
        target = diverging.end_offset
        if own_epoch >= 0:
            target = min(target, own_end)
        if target < state.high_watermark:
            log.error(
                "%s-%d: node %d lacks what is committed from offset %d on; not cut below %d",
                partition.topic,
                partition.index,
                self._leader,
                target,
                state.high_watermark,
            )
            target = state.high_watermark
        # An epoch that began here and has no records is cut off too, although no record is.
        target = min(target, state.log_end)
        before = (state.log_end, log_.epochs.latest)
        producers = await self._owner.disk.run(partial(rebuilt_producers, log_, target))

        def plan() -> Truncation | Reset | None:
            # Memory and state change in one step: whoever becomes the leader meanwhile finds both.
            if not _still(partition, asked):
                return None
            truncation = log_.truncate_to(target)
            state.truncated(log_.end_offset, producers)
            return truncation

        await self._owner.commit.operate(partition, plan)
        if before == (state.log_end, log_.epochs.latest):
            self._pause(partition)
            return
        log.info(
            "%s-%d: cut at offset %d, where the leader's epoch %d ends",
            partition.topic,
            partition.index,
            log_.end_offset,
            diverging.epoch,
        )

    async def _begin_anew(self, partition: Partition, leader_start: int, asked: Asked) -> None:
        """The leader has deleted what this replica would need next."""
        state = partition.state
        if state.durable_end >= leader_start:
            self._pause(partition)
            return
        if not partition.has_directory:
            await self._owner.disk.run(partition.make_directory)

        def plan() -> Reset | None:
            if not _still(partition, asked):
                return None
            reset = partition.log.reset_to(leader_start)
            state.restarted_at(leader_start)
            return reset

        await self._owner.commit.operate(partition, plan)


def _still(partition: Partition, asked: Asked) -> bool:
    """True while an answer fits: nothing was appended and no leader elected since it was asked.

    A former leader may have had batches on their way to the disk; what the new leader has at their
    offsets is something else.
    """
    state = partition.state
    return not state.is_leader and (state.log_end, state.leader_epoch) == asked[:2]


def _resolve(done: asyncio.Future[ErrorCode], code: ErrorCode) -> None:
    if not done.done():
        done.set_result(code)
