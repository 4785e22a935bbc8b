"""SyncGroup (key 14): the leader brings the assignment, everybody waits until it is committed."""

from chronik.groups.commands import SyncGroup
from chronik.groups.group import Group, GroupState
from chronik.groups.rebalance import (
    answer_sync,
    fail_assignment,
    rebalance_or_complete,
    sync_response,
)
from chronik.groups.records import GroupMetadataValue
from chronik.groups.responses import SyncGroupResponse, append_error
from chronik.groups.shard import Shard
from chronik.model.errors import ErrorCode


def sync(shard: Shard, command: SyncGroup, reply_to: object) -> None:
    """Answers with the assignment, now or when it is committed."""
    group = shard.groups.get(command.group_id)
    error = _validate(group, command)
    if error is not ErrorCode.NONE:
        shard.reply(reply_to, SyncGroupResponse(error))
        return
    assert group is not None
    member = group.members[command.member_id]
    _forget_pending_sync(shard, group, command.member_id)
    if group.state is GroupState.STABLE:
        shard.reply(reply_to, sync_response(group, member))
        shard.set_timer(member.timer, member.session_timeout_ms)
        return
    answer_sync(shard, group, member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.awaiting_sync = reply_to
    if group.leader_id == member.member_id and not group.assignment_in_flight:
        group.assignment_in_flight = True
        shard.write(group.record(dict(command.assignments)))


def settle(shard: Shard, group: Group, value: GroupMetadataValue) -> None:
    """The generation's record is committed: the group is stable and everybody may know.

    If the group has moved on meanwhile, the record is history and changes nothing here.
    """
    if not _is_current(group, value):
        return
    assignments = {m.member_id: m.assignment for m in value.members}
    group.transition(GroupState.STABLE, shard.now_ms)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        answer_sync(shard, group, member, ErrorCode.NONE)


def settle_failure(shard: Shard, group: Group, value: GroupMetadataValue, error: ErrorCode) -> None:
    """The generation could not be stored: nobody may use it, everybody joins again."""
    if not _is_current(group, value):
        return
    fail_assignment(shard, group, append_error(error))
    rebalance_or_complete(shard, group)


def _is_current(group: Group, value: GroupMetadataValue) -> bool:
    assert value.generation <= group.generation_id, "a record of a generation nobody started"
    return (
        group.state is GroupState.COMPLETING_REBALANCE
        and group.generation_id == value.generation
        and group.assignment_in_flight
    )


def _validate(group: Group | None, command: SyncGroup) -> ErrorCode:
    if not command.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.validate(command.member_id, command.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if command.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(command.protocol_type, group.protocol_type) or _differs(
        command.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(stated: str | None, actual: str | None) -> bool:
    """Before v5 a client states neither type nor name."""
    return stated is not None and stated != actual


def _forget_pending_sync(shard: Shard, group: Group, member_id: str) -> None:
    group.pending_sync.discard(member_id)
    if not group.pending_sync:
        shard.timers.cancel(group.sync_timer)
