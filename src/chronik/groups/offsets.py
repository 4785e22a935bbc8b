"""OffsetCommit (8), OffsetFetch (9), OffsetDelete (47), and the offsets of deleted topics.

Transactional commits (KIP-98) would add a pending offset beside the committed one: `require_stable`
is accepted and, with nothing ever pending, always satisfied.
"""

from chronik.groups.commands import (
    NO_MEMBER_ID,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    TopicsDeleted,
)
from chronik.groups.group import Group, GroupState
from chronik.groups.records import NO_TIMESTAMP, OffsetCommitRecord, OffsetCommitValue
from chronik.groups.responses import (
    FetchedOffset,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    PartitionResult,
)
from chronik.groups.shard import Shard
from chronik.model.errors import ErrorCode


def commit(shard: Shard, command: OffsetCommit, reply_to: object) -> None:
    """Stores offsets; the answer leaves when they are committed."""
    error = _validate_commit(shard, command)
    if error is not ErrorCode.NONE:
        results = tuple(PartitionResult(o.topic, o.partition, error) for o in command.offsets)
        shard.reply(reply_to, OffsetCommitResponse(results))
        return
    results = tuple(_commit_one(shard, command, offset) for offset in command.offsets)
    shard.reply_after_write(command.group_id, reply_to, OffsetCommitResponse(results))


def fetch(shard: Shard, command: OffsetFetch, reply_to: object) -> None:
    """Reads committed offsets; a group or partition without any reads as -1."""
    if command.topics is None:
        found = tuple(
            _fetched(topic, partition, value)
            for topic, partition, value in shard.durable.offsets_of(command.group_id)
        )
    else:
        found = tuple(
            _fetched(topic, p, shard.durable.offset(command.group_id, topic, p))
            for topic, partitions in command.topics
            for p in partitions
        )
    shard.reply(reply_to, OffsetFetchResponse(ErrorCode.NONE, found))


def delete(shard: Shard, command: OffsetDelete, reply_to: object) -> None:
    """Removes offsets that no member is about to use."""
    group = shard.groups.get(command.group_id)
    if group is None:
        shard.reply(reply_to, OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND))
        return
    if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
        shard.reply(reply_to, OffsetDeleteResponse(ErrorCode.NON_EMPTY_GROUP))
        return
    keys = frozenset(shard.offset_keys(command.group_id))
    results = tuple(
        _delete_one(shard, group, topic, p, exists=(topic, p) in keys)
        for topic, partitions in command.topics
        for p in partitions
    )
    response = OffsetDeleteResponse(ErrorCode.NONE, results)
    shard.reply_after_write(command.group_id, reply_to, response)


def topics_deleted(shard: Shard, command: TopicsDeleted, _reply_to: object) -> None:
    """A topic made anew under an old name must not inherit its consumers' positions."""
    groups = dict.fromkeys(shard.durable.offsets)
    groups.update(dict.fromkeys(write.group_id for write in shard.in_flight))
    for group_id in groups:
        for topic, partition in shard.offset_keys(group_id):
            if topic in command.topics:
                shard.write(OffsetCommitRecord(group_id, topic, partition, None))


def _validate_commit(shard: Shard, command: OffsetCommit) -> ErrorCode:
    group = shard.groups.get(command.group_id)
    simple = command.generation_id < 0
    if group is None:
        return ErrorCode.NONE if simple else ErrorCode.GROUP_ID_NOT_FOUND
    if simple and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    anonymous = command.member_id == NO_MEMBER_ID and command.group_instance_id is None
    if simple and anonymous:
        # Only members may move the offsets of a group that has some.
        return ErrorCode.UNKNOWN_MEMBER_ID
    return _validate_member_commit(shard, group, command)


def _validate_member_commit(shard: Shard, group: Group, command: OffsetCommit) -> ErrorCode:
    error = group.validate(command.member_id, command.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if command.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member has its generation but not yet its partitions.
        return ErrorCode.REBALANCE_IN_PROGRESS
    member = group.members[command.member_id]
    shard.set_timer(member.timer, member.session_timeout_ms)
    return ErrorCode.NONE


def _commit_one(shard: Shard, command: OffsetCommit, offset: OffsetToCommit) -> PartitionResult:
    metadata = offset.metadata or ""
    if len(metadata) > shard.config.offset_metadata_length_max:
        error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        return PartitionResult(offset.topic, offset.partition, error)
    expires = command.retention_ms >= 0
    value = OffsetCommitValue(
        offset.offset,
        offset.leader_epoch,
        metadata,
        shard.now_ms,
        shard.now_ms + command.retention_ms if expires else NO_TIMESTAMP,
        offset.topic_id,
    )
    shard.write(OffsetCommitRecord(command.group_id, offset.topic, offset.partition, value))
    return PartitionResult(offset.topic, offset.partition, ErrorCode.NONE)


def _delete_one(
    shard: Shard, group: Group, topic: str, partition: int, *, exists: bool
) -> PartitionResult:
    if group.is_subscribed_to(topic):
        return PartitionResult(topic, partition, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    if exists:
        shard.write(OffsetCommitRecord(group.group_id, topic, partition, None))
    return PartitionResult(topic, partition, ErrorCode.NONE)


def _fetched(topic: str, partition: int, value: OffsetCommitValue | None) -> FetchedOffset:
    if value is None:
        return FetchedOffset(topic, partition)
    return FetchedOffset(topic, partition, value.offset, value.leader_epoch, value.metadata)
