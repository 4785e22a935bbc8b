"""LeaveGroup (key 13): members go at once instead of timing out; batches since v3 (KIP-345)."""

from chronik.groups.commands import NO_MEMBER_ID, LeaveGroup, LeavingMember
from chronik.groups.group import Group
from chronik.groups.rebalance import rebalance_or_complete, remove_member
from chronik.groups.responses import LeaveGroupResponse, LeftMember
from chronik.groups.shard import Shard
from chronik.model.errors import ErrorCode


def leave(shard: Shard, command: LeaveGroup, reply_to: object) -> None:
    """Removes each member, then rebalances once for all of them."""
    group = shard.groups.get(command.group_id)
    if group is None:
        error = ErrorCode.UNKNOWN_MEMBER_ID if command.group_id else ErrorCode.INVALID_GROUP_ID
        shard.reply(reply_to, _refusal(command, error))
        return
    sizes_before = len(group.members), len(group.pending_members)
    left = tuple(
        LeftMember(m.member_id, m.group_instance_id, _leave_one(shard, group, m))
        for m in command.members
    )
    if (len(group.members), len(group.pending_members)) != sizes_before:
        _carry_on(shard, group, lost_members=len(group.members) != sizes_before[0])
    response = LeaveGroupResponse(ErrorCode.NONE, left)
    shard.reply_after_write(group.group_id, reply_to, response)
    shard.forget_if_unused(group)


def _carry_on(shard: Shard, group: Group, *, lost_members: bool) -> None:
    """A given id that is handed back starts no rebalance, but one may have waited for it."""
    if lost_members or not group.can_rebalance:
        rebalance_or_complete(shard, group)


def _leave_one(shard: Shard, group: Group, leaving: LeavingMember) -> ErrorCode:
    instance_id = leaving.group_instance_id
    if instance_id is None:
        return _leave_by_member_id(shard, group, leaving.member_id)
    current = group.static_members.get(instance_id)
    if current is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if leaving.member_id not in (NO_MEMBER_ID, current):
        return ErrorCode.FENCED_INSTANCE_ID
    remove_member(shard, group, group.members[current])
    return ErrorCode.NONE


def _leave_by_member_id(shard: Shard, group: Group, member_id: str) -> ErrorCode:
    timer = group.pending_members.pop(member_id, None)
    if timer is not None:
        shard.timers.cancel(timer)
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    remove_member(shard, group, member)
    return ErrorCode.NONE


def _refusal(command: LeaveGroup, error: ErrorCode) -> LeaveGroupResponse:
    """Kafka tells an unknown group per member, so that old and new clients see the same."""
    if error is ErrorCode.INVALID_GROUP_ID:
        return LeaveGroupResponse(error)
    left = tuple(LeftMember(m.member_id, m.group_instance_id, error) for m in command.members)
    return LeaveGroupResponse(ErrorCode.NONE, left)
