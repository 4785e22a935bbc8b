"""Drives the group coordinators: one per partition of `__consumer_offsets` that this node leads.

A coordinator is loaded from its partition's log when it is first needed. Its commands are carried
out on the event loop in the order of arrival; its records are appended like any produce, and its
replies leave when the high watermark has passed them (see the card of `groups`).
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import cast

from chronik.broker.clock import Clock
from chronik.broker.commit import GroupCommit
from chronik.broker.controller import Controller, ControllerUnavailableError
from chronik.broker.disk import Disk
from chronik.broker.partition import Partition
from chronik.broker.partitions import Partitions
from chronik.cluster.commands import CreateTopics, NewTopic
from chronik.cluster.image import ClusterImage
from chronik.groups.commands import Command, Heartbeat, ListGroups, OffsetCommit, TopicsDeleted
from chronik.groups.config import GroupConfig
from chronik.groups.coordinator import GroupCoordinator
from chronik.groups.placement import partition_for
from chronik.groups.records import Record, decode, encode
from chronik.groups.responses import ListGroupsResponse, Output, Response, Write
from chronik.model.broker_configs import effective
from chronik.model.configs import BrokerLayers
from chronik.model.errors import ErrorCode
from chronik.model.names import GROUP_OFFSETS_TOPIC
from chronik.wire.record_iter import iter_records
from chronik.wire.record_writer import build_batch
from chronik.wire.records import read_header, scan

LOAD_WAIT_S = 10.0
LOAD_CHUNK_BYTES = 1024 * 1024
OFFSETS_SEGMENT_BYTES = 100 * 1024 * 1024
"""Kafka's offsets.topic.segment.bytes: small segments are compacted sooner and load faster."""

log = logging.getLogger(__name__)


class CoordinatorError(Exception):
    """This node cannot answer for the group; `code` tells the client what to do."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def group_config(layers: BrokerLayers) -> GroupConfig:
    """The coordinator's settings from the node's configuration."""

    def number(name: str) -> int:
        return int(str(effective(name, layers)))

    return GroupConfig(
        session_timeout_ms_min=number("group.min.session.timeout.ms"),
        session_timeout_ms_max=number("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
        group_size_max=number("group.max.size"),
        offset_metadata_length_max=number("offset.metadata.max.bytes"),
        offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=number("offsets.retention.check.interval.ms"),
    )


class _Shard:
    """One coordinator with its partition and its timer."""

    __slots__ = ("_armed_ms", "_owner", "_timer", "coordinator", "loading", "partition")

    def __init__(self, owner: "Coordinators", partition: Partition) -> None:
        self._owner = owner
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self.partition = partition
        self.coordinator = GroupCoordinator(owner.config, _new_uuid)
        self.loading: asyncio.Future[None] | None = None

    def step(self, command: Command, reply_to: object) -> None:
        """Carries out one command."""
        self.take(self.coordinator.step(command, reply_to, self._owner.clock.now_ms()))

    def answer_now(self, command: Heartbeat) -> Response:
        """Carries out a command that writes nothing."""
        output = self.coordinator.step(command, None, self._owner.clock.now_ms())
        assert not output.writes
        (reply,) = output.replies
        self._arm()
        return reply.response

    def take(self, output: Output) -> None:
        """Sends what may be sent, writes what must be written, and sets the clock."""
        for reply in output.replies:
            future = cast("asyncio.Future[Response] | None", reply.reply_to)
            if future is not None and not future.done():
                future.set_result(reply.response)
        for write in output.writes:
            self._append(write)
        self._arm()

    def _append(self, write: Write) -> None:
        now_ms = self._owner.clock.now_ms()
        batch = memoryview(build_batch([encode(record) for record in write.records], now_ms))
        header = read_header(batch)
        if header.size > self.partition.rules.max_message_bytes:
            self.take(self.coordinator.failed(write, ErrorCode.MESSAGE_TOO_LARGE, now_ms))
            return
        appended = self.partition.append(batch, header, now_ms)
        self.partition.committed_waiters.add(
            appended.last_offset + 1, lambda code: self._settled(write, code)
        )
        self._owner.commit.add(self.partition)

    def _settled(self, write: Write, code: ErrorCode) -> None:
        now_ms = self._owner.clock.now_ms()
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return  # `close` comes next, and answers whoever waits
        if code is ErrorCode.NONE:
            self.take(self.coordinator.committed(write, now_ms))
        else:
            self.take(self.coordinator.failed(write, code, now_ms))

    def _arm(self) -> None:
        deadline_ms = self.coordinator.next_deadline()
        if deadline_ms is None:
            return
        if self._timer is not None:
            if self._armed_ms <= deadline_ms:
                return  # it fires early, looks, and arms again
            self._timer.cancel()
        delay_ms = max(0, deadline_ms - self._owner.clock.now_ms())
        self._armed_ms = deadline_ms
        self._timer = self._owner.loop.call_later(delay_ms / 1000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.take(self.coordinator.on_time(self._owner.clock.now_ms()))

    def close(self) -> None:
        """Tells those who wait that this node no longer coordinates."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        output = self.coordinator.unload(self._owner.clock.now_ms())
        for reply in output.replies:
            future = cast("asyncio.Future[Response] | None", reply.reply_to)
            if future is not None and not future.done():
                future.set_result(reply.response)


class Coordinators:
    """The groups of this node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        disk: Disk,
        commit: GroupCommit,
        controller: Controller,
        partitions: Partitions,
        layers: Callable[[], BrokerLayers],
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.commit = commit
        self._disk = disk
        self._controller = controller
        self._partitions = partitions
        self._layers = layers
        self._shards: dict[int, _Shard] = {}

    @property
    def config(self) -> GroupConfig:
        """The settings for coordinators loaded from now on."""
        return group_config(self._layers())

    async def submit(self, group_id: str, command: Command) -> Response:
        """The coordinator's answer, once what it depends on is committed."""
        shard = await self._shard_of(group_id)
        future: asyncio.Future[Response] = self.loop.create_future()
        shard.step(command, future)
        return await future

    def submit_now(self, command: OffsetCommit) -> asyncio.Future[Response] | None:
        """As `submit`, without a task to wait in; None where the group is not loaded here."""
        shard = self._loaded_shard(command.group_id)
        if shard is None:
            return None
        future: asyncio.Future[Response] = self.loop.create_future()
        shard.step(command, future)
        return future

    def answer_now(self, command: Heartbeat) -> Response | None:
        """The answer, which waits for nothing; None where the group is not loaded here."""
        shard = self._loaded_shard(command.group_id)
        return None if shard is None else shard.answer_now(command)

    def _loaded_shard(self, group_id: str) -> _Shard | None:
        topic = self._controller.image.topics.get(GROUP_OFFSETS_TOPIC)
        if topic is None:
            return None
        shard = self._shards.get(partition_for(group_id, len(topic.partitions)))
        return None if shard is None or shard.loading is not None else shard

    async def submit_all(self, command: ListGroups) -> list[ListGroupsResponse]:
        """Asks every coordinator of this node."""
        topic = self._controller.image.topics.get(GROUP_OFFSETS_TOPIC)
        answers = []
        for index in range(len(topic.partitions) if topic is not None else 0):
            partition = self._partitions.by_name(GROUP_OFFSETS_TOPIC, index)
            if partition is None or not partition.state.is_leader:
                continue
            if partition.log.end_offset == 0 and index not in self._shards:
                continue  # nothing was ever kept there
            shard = await self._loaded(index, partition)
            future: asyncio.Future[Response] = self.loop.create_future()
            shard.step(command, future)
            answer = await future
            assert isinstance(answer, ListGroupsResponse)
            answers.append(answer)
        return answers

    async def ensure_topic(self) -> ErrorCode:
        """Creates `__consumer_offsets` when it is first needed."""
        if GROUP_OFFSETS_TOPIC in self._controller.image.topics:
            return ErrorCode.NONE
        layers = self._layers()
        replication = int(str(effective("offsets.topic.replication.factor", layers)))
        topic = NewTopic(
            GROUP_OFFSETS_TOPIC,
            secrets.token_bytes(16),
            int(str(effective("offsets.topic.num.partitions", layers))),
            min(replication, len(self._controller.image.brokers)),
            configs=(
                ("cleanup.policy", "compact"),
                ("segment.bytes", str(OFFSETS_SEGMENT_BYTES)),
            ),
        )
        try:
            (created,) = await self._controller.submit(CreateTopics((topic,)))
        except ControllerUnavailableError as error:
            log.warning("cannot create %s yet: %s", GROUP_OFFSETS_TOPIC, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if created.error.code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            return ErrorCode.NONE
        log.error("cannot create %s: %s", GROUP_OFFSETS_TOPIC, created.error.message)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def find(self, key: str, listener: str) -> tuple[ErrorCode, tuple[int, str, int]]:
        """The node that coordinates a group, with its address for clients of a listener."""
        nowhere = (-1, "", -1)
        code = await self.ensure_topic()
        if code is not ErrorCode.NONE:
            return code, nowhere
        image = self._controller.image
        topic = image.topics[GROUP_OFFSETS_TOPIC]
        state = topic.partitions[partition_for(key, len(topic.partitions))]
        broker = image.brokers.get(state.leader)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if endpoint is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, nowhere
        return ErrorCode.NONE, (state.leader, endpoint.host, endpoint.port)

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Offsets of deleted topics go too."""
        gone = frozenset(old.topics) - frozenset(new.topics) if old.topics is not new.topics else ()
        if gone:
            for shard in self._shards.values():
                if shard.loading is None:
                    shard.step(TopicsDeleted(frozenset(gone)), None)

    def role_changed(self, partition: Partition) -> None:
        """Another node leads: it coordinates from now on, and whoever waits here is told."""
        if partition.topic != GROUP_OFFSETS_TOPIC or partition.state.is_leader:
            return
        shard = self._shards.pop(partition.index, None)
        if shard is not None and shard.loading is None:
            shard.close()

    def close(self) -> None:
        """The node stops."""
        for shard in self._shards.values():
            if shard.loading is None:
                shard.close()
        self._shards.clear()

    # -- loading

    async def _shard_of(self, group_id: str) -> _Shard:
        topic = self._controller.image.topics.get(GROUP_OFFSETS_TOPIC)
        if topic is None:
            code = await self.ensure_topic()
            if code is not ErrorCode.NONE:
                raise CoordinatorError(code)
            topic = self._controller.image.topics[GROUP_OFFSETS_TOPIC]
        index = partition_for(group_id, len(topic.partitions))
        partition = self._partitions.by_name(GROUP_OFFSETS_TOPIC, index)
        if partition is None or not partition.state.is_leader:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        return await self._loaded(index, partition)

    async def _loaded(self, index: int, partition: Partition) -> _Shard:
        shard = self._shards.get(index)
        if shard is None:
            shard = self._shards[index] = _Shard(self, partition)
            shard.loading = self.loop.create_future()
            try:
                await self._load(shard)
            except BaseException as error:
                if self._shards.get(index) is shard:
                    del self._shards[index]
                loading, shard.loading = shard.loading, None
                loading.set_result(None)
                log.warning("cannot load %s-%d: %r", GROUP_OFFSETS_TOPIC, index, error)
                if isinstance(error, Exception):
                    raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
                raise
        if shard.loading is not None:
            await asyncio.shield(shard.loading)
        if self._shards.get(index) is not shard:
            raise CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return shard

    async def _inherited(self, partition: Partition) -> None:
        if partition.state.high_watermark >= partition.state.epoch_start:
            return
        reached: asyncio.Future[ErrorCode] = self.loop.create_future()

        def released(code: ErrorCode) -> None:
            if not reached.done():
                reached.set_result(code)

        partition.committed_waiters.add(partition.state.epoch_start, released)
        async with asyncio.timeout(LOAD_WAIT_S):
            code = await reached
        if code not in {ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)

    async def _load(self, shard: _Shard) -> None:
        """Replays the partition's committed records, a chunk at a time in a disk thread.

        A new leader's watermark lags at first: what it inherited is waited for, all of it counts.
        """
        partition = shard.partition
        await self._inherited(partition)
        offset = partition.state.log_start
        while offset < partition.state.high_watermark:
            read = partition.read(offset, LOAD_CHUNK_BYTES, at_least_one_batch=True)
            if read is None or not read.size:
                break
            data = b"".join(read.slices)
            records, offset = await self._disk.run(partial(_decoded, data))
            shard.coordinator.load(records)
        if not partition.state.is_leader:
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        assert shard.loading is not None
        loading, shard.loading = shard.loading, None
        shard.take(shard.coordinator.loaded(self.clock.now_ms()))
        loading.set_result(None)


def _decoded(data: bytes) -> tuple[list[Record], int]:
    """The records of the whole batches in `data`, and the offset after them."""
    view = memoryview(data)
    found: list[Record] = []
    next_offset = 0
    for position, header in scan(view):
        next_offset = header.next_offset
        for record in iter_records(view[position : position + header.size]):
            decoded = decode(record.key or b"", record.value)
            if decoded is not None:
                found.append(decoded)
    return found, next_offset


def _new_uuid() -> str:
    digits = secrets.token_hex(16)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
