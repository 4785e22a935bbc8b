"""The coordinator of one `__consumer_offsets` partition; the room's card holds its contract."""

from collections.abc import Callable, Iterable
from typing import Any

from chronik.groups import admin, expiry, heartbeat, join, leave, members, offsets, rebalance, sync
from chronik.groups.commands import (
    Command,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TopicsDeleted,
)
from chronik.groups.config import GroupConfig
from chronik.groups.durable import DurableState
from chronik.groups.group import Group, GroupState
from chronik.groups.records import (
    NO_TIMESTAMP,
    GroupMetadataRecord,
    GroupMetadataValue,
    Record,
)
from chronik.groups.responses import Output, Write
from chronik.groups.shard import Shard
from chronik.groups.timers import Timer, TimerKind
from chronik.model.errors import ErrorCode

_COMMANDS: dict[type, Callable[[Shard, Any, object], None]] = {
    JoinGroup: join.join,
    SyncGroup: sync.sync,
    Heartbeat: heartbeat.heartbeat,
    LeaveGroup: leave.leave,
    OffsetCommit: offsets.commit,
    OffsetFetch: offsets.fetch,
    OffsetDelete: offsets.delete,
    TopicsDeleted: offsets.topics_deleted,
    ListGroups: admin.list_groups,
    DescribeGroup: admin.describe,
    DeleteGroup: admin.delete,
}

_GROUP_TIMERS: dict[TimerKind, Callable[[Shard, str, str], None]] = {
    TimerKind.SESSION: heartbeat.on_session_timer,
    TimerKind.JOIN: rebalance.on_join_timer,
    TimerKind.SYNC: rebalance.on_sync_timer,
}


class GroupCoordinator:
    """Life: `load`, `loaded`, then `step`, `committed`, `failed`, `on_time`, at last `unload`."""

    __slots__ = ("_active", "_offsets_timer", "_shard")

    def __init__(self, config: GroupConfig, new_uuid: Callable[[], str]) -> None:
        self._shard = Shard(config, new_uuid)
        self._offsets_timer = Timer(TimerKind.OFFSETS)
        self._active = False

    @property
    def durable(self) -> DurableState:
        """The fold of the committed records."""
        return self._shard.durable

    @property
    def groups(self) -> dict[str, Group]:
        """The groups in memory, to look at (metrics, tests)."""
        return self._shard.groups

    def load(self, records: Iterable[Record]) -> None:
        """Replays committed records, oldest first; may be called for chunk after chunk."""
        assert not self._active
        for record in records:
            self._shard.durable.replay(record)

    def loaded(self, now_ms: int) -> Output:
        """Ends the loading; every stored member has a whole session to be heard of (FM 68)."""
        assert not self._active
        self._active = True
        shard = self._begin(now_ms)
        for group_id, value in shard.durable.generations.items():
            _restore(shard, group_id, value)
        for group_id in shard.durable.offsets:
            if group_id not in shard.groups:
                shard.create_group(group_id)
        shard.set_timer(self._offsets_timer, shard.config.offsets_retention_check_interval_ms)
        return shard.finish()

    def step(self, command: Command, reply_to: object, now_ms: int) -> Output:
        """Carries out one command; its reply may come with a later output."""
        shard = self._begin(now_ms)
        assert self._active
        _COMMANDS[type(command)](shard, command, reply_to)
        return shard.finish()

    def committed(self, write: Write, now_ms: int) -> Output:
        """The write is below the high watermark: its records are replayed, its replies leave."""
        shard = self._begin(now_ms)
        if not self._active:
            return shard.finish()
        assert next(iter(shard.in_flight)) is write, "writes are committed in the order of the log"
        del shard.in_flight[write]
        for record in write.records:
            shard.durable.replay(record)
            _settle(shard, record)
        for reply in write.replies:
            shard.reply(reply.reply_to, reply.response)
        group = shard.groups.get(write.group_id)
        if group is not None:
            shard.forget_if_unused(group)
        return shard.finish()

    def failed(self, write: Write, error: ErrorCode, now_ms: int) -> Output:
        """The write is not, and will never be, in the log: its replies become errors."""
        shard = self._begin(now_ms)
        if not self._active:
            return shard.finish()
        del shard.in_flight[write]
        for reply in write.replies:
            shard.reply(reply.reply_to, reply.response.failed(error))
        group = shard.groups.get(write.group_id)
        if group is not None:
            _settle_failure(shard, group, write, error)
            shard.forget_if_unused(group)
        return shard.finish()

    def next_deadline(self) -> int | None:
        """When `on_time` has something to do; sometimes early, never late."""
        return self._shard.timers.next_deadline()

    def on_time(self, now_ms: int) -> Output:
        """Fires what is due; harmless when nothing is."""
        shard = self._begin(now_ms)
        while (timer := shard.timers.pop_due(now_ms)) is not None:
            if timer is self._offsets_timer:
                self._expire_offsets(shard)
            else:
                _GROUP_TIMERS[timer.kind](shard, timer.group_id, timer.member_id)
        return shard.finish()

    def unload(self, now_ms: int, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> Output:
        """Leadership is lost: whatever waits is told so.

        The object is of no further use; a late `committed`, `failed` or `on_time` does nothing.
        """
        shard = self._begin(now_ms)
        self._active = False
        for write in shard.in_flight:
            for reply in write.replies:
                shard.reply(reply.reply_to, reply.response.failed(error))
        for group in shard.groups.values():
            for member in group.members.values():
                rebalance.answer_parked(shard, group, member, error)
        shard.clear()
        return shard.finish()

    def _begin(self, now_ms: int) -> Shard:
        # A clock that steps back would only lengthen sessions; the state never sees it.
        self._shard.now_ms = max(self._shard.now_ms, now_ms)
        return self._shard

    def _expire_offsets(self, shard: Shard) -> None:
        shard.set_timer(self._offsets_timer, shard.config.offsets_retention_check_interval_ms)
        expiry.on_offsets_timer(shard)


def _restore(shard: Shard, group_id: str, value: GroupMetadataValue) -> None:
    """A group as its last record tells: Stable with its members, or Empty."""
    group = shard.create_group(group_id)
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.generation_id = value.generation
    timestamp_ms = value.current_state_timestamp_ms
    group.state_timestamp_ms = None if timestamp_ms == NO_TIMESTAMP else timestamp_ms
    for data in value.members:
        member = members.loaded(group_id, value.protocol_type, value.protocol, data)
        group.add(member)
        shard.set_timer(member.timer, member.session_timeout_ms)
    if value.members:
        group.state = GroupState.STABLE
        group.leader_id = value.leader
    group.subscribed = group.compute_subscribed()
    if len(group.members) > shard.config.group_size_max:
        rebalance.prepare_rebalance(shard, group)


def _settle(shard: Shard, record: Record) -> None:
    """What a committed record means for the group in memory."""
    group = shard.groups.get(record.group_id)
    if group is None:
        # A simple consumer's first commit makes the group; one that is deleted had no members.
        assert record.value is None or not isinstance(record, GroupMetadataRecord)
        if record.value is not None:
            shard.create_group(record.group_id)
    elif isinstance(record, GroupMetadataRecord) and record.value is not None:
        sync.settle(shard, group, record.value)


def _settle_failure(shard: Shard, group: Group, write: Write, error: ErrorCode) -> None:
    for record in write.records:
        if isinstance(record, GroupMetadataRecord) and record.value is not None:
            sync.settle_failure(shard, group, record.value, error)
