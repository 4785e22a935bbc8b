"""ListGroups (16), DescribeGroups (15), DeleteGroups (42)."""

from chronik.groups.commands import DeleteGroup, DescribeGroup, ListGroups
from chronik.groups.group import Group, GroupState
from chronik.groups.members import Member
from chronik.groups.records import GroupMetadataRecord, OffsetCommitRecord
from chronik.groups.responses import (
    DeleteGroupResponse,
    DescribedMember,
    DescribeGroupResponse,
    ListedGroup,
    ListGroupsResponse,
)
from chronik.groups.shard import Shard
from chronik.model.errors import ErrorCode

GROUP_TYPE = "classic"


def list_groups(shard: Shard, command: ListGroups, reply_to: object) -> None:
    """Lists groups, simple ones too; filters ignore case (KIP-518 states, KIP-848 types)."""
    states = {state.lower() for state in command.states_filter}
    types = {name.lower() for name in command.types_filter}
    listed = tuple(
        ListedGroup(g.group_id, g.protocol_type or "", g.state.value, GROUP_TYPE)
        for g in shard.groups.values()
        if (not states or g.state.value.lower() in states) and (not types or GROUP_TYPE in types)
    )
    shard.reply(reply_to, ListGroupsResponse(ErrorCode.NONE, listed))


def describe(shard: Shard, command: DescribeGroup, reply_to: object) -> None:
    """Shows a group; while it rebalances, what its members had is not shown."""
    group = shard.groups.get(command.group_id)
    if group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
        shard.reply(reply_to, DescribeGroupResponse(error, command.group_id))
        return
    stable = group.state is GroupState.STABLE
    response = DescribeGroupResponse(
        ErrorCode.NONE,
        group.group_id,
        group.state.value,
        group.protocol_type or "",
        (group.protocol_name or "") if stable else "",
        tuple(_described(group, member, stable=stable) for member in group.members.values()),
    )
    shard.reply(reply_to, response)


def delete(shard: Shard, command: DeleteGroup, reply_to: object) -> None:
    """Tombstones for the group and for all its offsets, those under way included (FM 67)."""
    group = shard.groups.get(command.group_id)
    if group is None:
        shard.reply(reply_to, DeleteGroupResponse(ErrorCode.GROUP_ID_NOT_FOUND))
        return
    if group.state is not GroupState.EMPTY:
        shard.reply(reply_to, DeleteGroupResponse(ErrorCode.NON_EMPTY_GROUP))
        return
    for topic, partition in shard.offset_keys(command.group_id):
        shard.write(OffsetCommitRecord(command.group_id, topic, partition, None))
    shard.write(GroupMetadataRecord(command.group_id, None))
    shard.reply_after_write(command.group_id, reply_to, DeleteGroupResponse(ErrorCode.NONE))


def _described(group: Group, member: Member, *, stable: bool) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.metadata(group.protocol_name) if stable else b"",
        member.assignment if stable else b"",
    )
