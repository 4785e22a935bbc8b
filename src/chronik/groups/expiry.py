"""Offsets nobody has used for `offsets.retention.ms` go (KIP-211), and empty groups with them."""

from itertools import islice

from chronik.groups.group import Group, GroupState
from chronik.groups.records import (
    NO_TIMESTAMP,
    GroupMetadataRecord,
    OffsetCommitRecord,
    OffsetCommitValue,
)
from chronik.groups.shard import Shard


def on_offsets_timer(shard: Shard) -> None:
    """One round over all groups; a group with a write under way waits for the next round.

    Its write may be a fresh commit of the very offset that looks expired.
    """
    busy = {write.group_id for write in shard.in_flight}
    for group in list(shard.groups.values()):
        if group.group_id not in busy:
            _expire(shard, group)


def _expire(shard: Shard, group: Group) -> None:
    limit = shard.config.expired_offsets_per_group_max
    expired = list(
        islice(
            (
                (topic, partition)
                for topic, partition, value in shard.durable.offsets_of(group.group_id)
                if not group.is_subscribed_to(topic) and _is_expired(shard, group, value)
            ),
            limit,
        )
    )
    for topic, partition in expired:
        shard.write(OffsetCommitRecord(group.group_id, topic, partition, None))
    left = sum(map(len, shard.durable.offsets.get(group.group_id, {}).values())) - len(expired)
    has_clients = group.state is not GroupState.EMPTY or bool(group.pending_members)
    if left == 0 and not has_clients and shard.durable.knows(group.group_id):
        shard.write(GroupMetadataRecord(group.group_id, None))


def _is_expired(shard: Shard, group: Group, value: OffsetCommitValue) -> bool:
    if _is_held(group):
        return False
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return shard.now_ms >= value.expire_timestamp_ms
    return shard.now_ms - _unused_since_ms(group, value) >= shard.config.offsets_retention_ms


def _is_held(group: Group) -> bool:
    """True in the states in which no offset of the group may go."""
    if group.protocol_type is None or group.state is GroupState.EMPTY:
        return False
    known = group.uses_consumer_protocol and group.subscribed is not None
    return not (known and group.state is GroupState.STABLE)


def _unused_since_ms(group: Group, value: OffsetCommitValue) -> int:
    """When the retention starts: at the last commit, or when the last member left."""
    if group.state is GroupState.EMPTY and group.protocol_type is not None:
        empty_since_ms = group.state_timestamp_ms
        return value.commit_timestamp_ms if empty_since_ms is None else empty_since_ms
    return value.commit_timestamp_ms
