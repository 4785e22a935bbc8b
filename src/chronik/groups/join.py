"""JoinGroup (key 11): a client becomes, or stays, a member of the next generation.

KIP-394  a dynamic member first learns its id (MEMBER_ID_REQUIRED) and joins again with it.
KIP-345  a static member is known by its group.instance.id; its restart needs no rebalance.
KIP-814  a restarted static leader is told to skip the assignment.
"""

from chronik.groups.commands import NO_MEMBER_ID, JoinGroup
from chronik.groups.group import Group, GroupState
from chronik.groups.members import Member, joining, session_timer
from chronik.groups.rebalance import (
    answer_parked,
    complete_join_if_ready,
    join_response,
    prepare_rebalance,
    rebalance_or_complete,
    remove_member,
)
from chronik.groups.responses import JoinGroupResponse
from chronik.groups.shard import Shard
from chronik.model.errors import ErrorCode


def join(shard: Shard, command: JoinGroup, reply_to: object) -> None:
    """Lets a client in, or says why not; the answer may come with the end of the rebalance."""
    error = _validate(shard, command)
    if error is not ErrorCode.NONE:
        shard.reply(reply_to, JoinGroupResponse(error, command.member_id))
        return
    group = shard.groups.get(command.group_id)
    if group is None:
        group = shard.create_group(command.group_id)
    if not _accepts(shard, group, command.member_id):
        _turn_away(shard, group, command.member_id)
        shard.reply(reply_to, JoinGroupResponse(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports(command.protocol_type, command.protocols):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        shard.reply(reply_to, JoinGroupResponse(error, command.member_id))
    elif command.member_id == NO_MEMBER_ID:
        _join_new(shard, group, command, reply_to)
    else:
        _join_known(shard, group, command, reply_to)
    shard.forget_if_unused(group)


def _validate(shard: Shard, command: JoinGroup) -> ErrorCode:
    config = shard.config
    timeout_ms = command.session_timeout_ms
    if not command.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not config.session_timeout_ms_min <= timeout_ms <= config.session_timeout_ms_max:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if command.member_id != NO_MEMBER_ID and command.group_id not in shard.groups:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def _accepts(shard: Shard, group: Group, member_id: str) -> bool:
    """Keeps the group within its size; during a rebalance those who joined first stay."""
    if group.state is GroupState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        waits = member is not None and member.awaiting_join is not None
        return waits or group.awaiting_join_count < shard.config.group_size_max
    return member is not None or len(group.members) < shard.config.group_size_max


def _turn_away(shard: Shard, group: Group, member_id: str) -> None:
    """The group is full: the last to come back lose their place."""
    _drop_pending(shard, group, member_id)
    member = group.members.get(member_id)
    if member is not None:
        remove_member(shard, group, member)
    complete_join_if_ready(shard, group)


def _join_new(shard: Shard, group: Group, command: JoinGroup, reply_to: object) -> None:
    member_id = f"{command.group_instance_id or command.client_id}-{shard.new_uuid()}"
    assert member_id not in group.members, "chance gave an id twice"
    if command.group_instance_id is not None:
        current = group.static_members.get(command.group_instance_id)
        if current is None:
            _add(shard, group, command, member_id, reply_to)
        else:
            _replace_static(shard, group, command, group.members[current], member_id, reply_to)
    elif command.requires_known_member_id:
        _give_id(shard, group, command, member_id, reply_to)
    else:
        _add(shard, group, command, member_id, reply_to)


def _give_id(
    shard: Shard, group: Group, command: JoinGroup, member_id: str, reply_to: object
) -> None:
    """KIP-394: a client that repeats its first join leaves no dead members behind."""
    timer = session_timer(group.group_id, member_id)
    group.pending_members[member_id] = timer
    shard.set_timer(timer, command.session_timeout_ms)
    shard.reply(reply_to, JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _join_known(shard: Shard, group: Group, command: JoinGroup, reply_to: object) -> None:
    if command.member_id in group.pending_members and command.group_instance_id is None:
        _drop_pending(shard, group, command.member_id)
        _add(shard, group, command, command.member_id, reply_to)
        return
    error = group.validate(command.member_id, command.group_instance_id)
    if error is not ErrorCode.NONE:
        shard.reply(reply_to, JoinGroupResponse(error, command.member_id))
        return
    member = group.members[command.member_id]
    if _changes_nothing(group, member, command):
        shard.reply(reply_to, join_response(group, member))
        return
    group.update(member, command)
    _park(shard, group, member, reply_to)
    rebalance_or_complete(shard, group)


def _changes_nothing(group: Group, member: Member, command: JoinGroup) -> bool:
    """A repeated join gets the current generation again.

    The leader of a stable group is the exception: its join says that the topics have changed.
    """
    same = member.protocols == command.protocols
    if group.state is GroupState.STABLE:
        return same and group.leader_id != member.member_id
    return same and group.state is GroupState.COMPLETING_REBALANCE


def _add(shard: Shard, group: Group, command: JoinGroup, member_id: str, reply_to: object) -> None:
    member = joining(command, member_id)
    if group.is_initial_rebalance:
        group.new_member_added = True
    group.add(member)
    group.park_join(member, reply_to)
    shard.set_timer(member.timer, shard.config.new_member_join_timeout_ms)
    rebalance_or_complete(shard, group)


def _park(shard: Shard, group: Group, member: Member, reply_to: object) -> None:
    """Keeps a join for later; an earlier one of the same member is told to come again."""
    answer_parked(shard, group, member, ErrorCode.REBALANCE_IN_PROGRESS)
    group.park_join(member, reply_to)


def _drop_pending(shard: Shard, group: Group, member_id: str) -> None:
    timer = group.pending_members.pop(member_id, None)
    if timer is not None:
        shard.timers.cancel(timer)


def _replace_static(
    shard: Shard, group: Group, command: JoinGroup, old: Member, member_id: str, reply_to: object
) -> None:
    """The client restarted: it gets a new id and the old place; the old id is fenced."""
    old_leader = group.leader_id or NO_MEMBER_ID
    new = joining(command, member_id)
    new.is_new = False
    new.assignment = old.assignment
    answer_parked(shard, group, old, ErrorCode.FENCED_INSTANCE_ID)
    shard.timers.cancel(old.timer)
    group.replace_static(old, new)
    shard.set_timer(new.timer, new.session_timeout_ms)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        _store_replacement(shard, group, command, new, old_leader, reply_to)
        return
    group.park_join(new, reply_to)
    if group.can_rebalance:
        # In CompletingRebalance the leader assigns to the old id, so everybody joins once more.
        prepare_rebalance(shard, group)
    else:
        complete_join_if_ready(shard, group)


def _store_replacement(
    shard: Shard,
    group: Group,
    command: JoinGroup,
    member: Member,
    old_leader: str,
    reply_to: object,
) -> None:
    """No rebalance: the new id is stored with the old assignment, then the client may go on."""
    leads = group.leader_id == member.member_id
    tells_members = leads and command.supports_skipping_assignment
    response = JoinGroupResponse(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        # Old clients cannot skip the assignment, so they are not told that they lead.
        (group.leader_id or NO_MEMBER_ID) if command.supports_skipping_assignment else old_leader,
        group.joined_members() if tells_members else (),
        skip_assignment=tells_members,
    )
    shard.write(group.record({m.member_id: m.assignment for m in group.members.values()}))
    shard.reply_after_write(group.group_id, reply_to, response)
