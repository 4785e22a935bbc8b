"""Heartbeat (key 12), and what happens to a member that is not heard of."""

from chronik.groups.commands import Heartbeat
from chronik.groups.group import Group, GroupState
from chronik.groups.rebalance import (
    complete_join_if_ready,
    rebalance_or_complete,
    remove_member,
)
from chronik.groups.responses import HeartbeatResponse
from chronik.groups.shard import Shard
from chronik.model.errors import ErrorCode


def heartbeat(shard: Shard, command: Heartbeat, reply_to: object) -> None:
    """Extends the member's session: a look-up and an assignment, no more."""
    group = shard.groups.get(command.group_id)
    error = _validate(group, command)
    if error is ErrorCode.NONE:
        assert group is not None
        member = group.members[command.member_id]
        shard.set_timer(member.timer, member.session_timeout_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    shard.reply(reply_to, HeartbeatResponse(error))


def on_session_timer(shard: Shard, group_id: str, member_id: str) -> None:
    """Drops a member whose session ended, or an id nobody came back with."""
    group = shard.groups[group_id]
    if group.pending_members.pop(member_id, None) is not None:
        complete_join_if_ready(shard, group)
        shard.forget_if_unused(group)
        return
    member = group.members[member_id]
    if member.satisfies_heartbeat:
        # Its session starts again when it gets its answer.
        return
    remove_member(shard, group, member)
    rebalance_or_complete(shard, group)


def _validate(group: Group | None, command: Heartbeat) -> ErrorCode:
    if not command.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.validate(command.member_id, command.group_instance_id)
    if error is ErrorCode.NONE and command.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error
