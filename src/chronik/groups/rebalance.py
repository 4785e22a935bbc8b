"""The two phases of a rebalance: wait for everybody to join, then for the leader's assignment.

JOIN phase   PreparingRebalance: joins are parked until all members, or the time, are there (FM 65).
SYNC phase   CompletingRebalance: the members know their generation; syncs are parked until the
             leader's assignment is committed. A new rebalance answers them (FM 66).
"""

from chronik.groups.commands import NO_MEMBER_ID
from chronik.groups.group import Group, GroupState
from chronik.groups.members import Member
from chronik.groups.responses import JoinGroupResponse, SyncGroupResponse
from chronik.groups.shard import Shard
from chronik.model.errors import ErrorCode


def rebalance_or_complete(shard: Shard, group: Group) -> None:
    """A member came or went: start a rebalance, or see whether the one under way is complete."""
    if group.can_rebalance:
        prepare_rebalance(shard, group)
    else:
        complete_join_if_ready(shard, group)


def prepare_rebalance(shard: Shard, group: Group) -> None:
    """Starts the join phase; whoever waits for an assignment has to join again."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        fail_assignment(shard, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    shard.timers.cancel(group.sync_timer)
    initial = group.state is GroupState.EMPTY
    group.transition(GroupState.PREPARING_REBALANCE, shard.now_ms)
    if initial:
        _start_initial_delay(shard, group)
    elif group.all_members_joined:
        complete_join(shard, group)
    else:
        shard.set_timer(group.join_timer, group.rebalance_timeout_ms)


def complete_join_if_ready(shard: Shard, group: Group) -> None:
    """Ends the join phase if nobody is missing; a first one lasts its delay, unless all left."""
    if group.state is not GroupState.PREPARING_REBALANCE or not group.all_members_joined:
        return
    if group.is_initial_rebalance and group.members:
        return
    complete_join(shard, group)


def complete_join(shard: Shard, group: Group) -> None:
    """Ends the join phase: drops the missing, elects, starts the next generation, answers all."""
    shard.timers.cancel(group.join_timer)
    for member in list(group.members.values()):
        if member.awaiting_join is None and not member.is_static:
            remove_member(shard, group, member)
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none came back; their sessions will end this.
        shard.set_timer(group.join_timer, group.rebalance_timeout_ms)
        return
    group.new_member_added = False
    group.next_generation(shard.now_ms)
    if group.state is GroupState.EMPTY:
        group.leader_id = None
        shard.write(group.record({}))
        return
    _start_sync_phase(shard, group)


def on_join_timer(shard: Shard, group_id: str, _member_id: str) -> None:
    """The join phase has lasted long enough, unless new members still arrive at the first one."""
    group = shard.groups[group_id]
    assert group.state is GroupState.PREPARING_REBALANCE
    delay_ms = min(shard.config.initial_rebalance_delay_ms, group.initial_remaining_ms)
    if group.is_initial_rebalance and group.new_member_added and delay_ms > 0:
        _extend_initial_delay(shard, group, delay_ms)
    else:
        complete_join(shard, group)


def on_sync_timer(shard: Shard, group_id: str, _member_id: str) -> None:
    """Members that took the generation but never asked for their assignment are gone."""
    group = shard.groups[group_id]
    assert group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    for member_id in sorted(group.pending_sync):
        remove_member(shard, group, group.members[member_id])
    prepare_rebalance(shard, group)


def fail_assignment(shard: Shard, group: Group, error: ErrorCode) -> None:
    """Takes the assignments back and answers everybody who waits for one."""
    assert group.state is GroupState.COMPLETING_REBALANCE
    group.assignment_in_flight = False
    for member in group.members.values():
        member.assignment = b""
        answer_sync(shard, group, member, error)


def answer_sync(shard: Shard, group: Group, member: Member, error: ErrorCode) -> None:
    """Answers a parked sync, if there is one; from then on the member has to heartbeat again."""
    reply_to, member.awaiting_sync = member.awaiting_sync, None
    if reply_to is None:
        return
    response = SyncGroupResponse(error)
    if error is ErrorCode.NONE:
        response = sync_response(group, member)
    shard.reply(reply_to, response)
    shard.set_timer(member.timer, member.session_timeout_ms)


def sync_response(group: Group, member: Member) -> SyncGroupResponse:
    """The member's assignment in the current generation."""
    return SyncGroupResponse(
        ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment
    )


def join_response(group: Group, member: Member) -> JoinGroupResponse:
    """The current generation; the leader is told of the members too."""
    leads = group.leader_id == member.member_id
    return JoinGroupResponse(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or NO_MEMBER_ID,
        group.joined_members() if leads else (),
    )


def remove_member(
    shard: Shard, group: Group, member: Member, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID
) -> None:
    """Takes a member out; a request of it that still waits is told why."""
    answer_parked(shard, group, member, error)
    shard.timers.cancel(member.timer)
    group.remove(member)


def answer_parked(shard: Shard, group: Group, member: Member, error: ErrorCode) -> None:
    """Answers whatever the member waits for with an error. No request stays without an answer."""
    join_to = group.take_join(member)
    if join_to is not None:
        shard.reply(join_to, JoinGroupResponse(error))
    if member.awaiting_sync is not None:
        shard.reply(member.awaiting_sync, SyncGroupResponse(error))
        member.awaiting_sync = None


def _start_initial_delay(shard: Shard, group: Group) -> None:
    """KIP-134: a new group gives its other members a moment, so as to rebalance once."""
    delay_ms = shard.config.initial_rebalance_delay_ms
    group.new_member_added = False
    group.initial_delay_ms = delay_ms
    group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    shard.set_timer(group.join_timer, delay_ms)


def _extend_initial_delay(shard: Shard, group: Group, delay_ms: int) -> None:
    group.new_member_added = False
    group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
    group.initial_delay_ms = delay_ms
    shard.set_timer(group.join_timer, delay_ms)


def _start_sync_phase(shard: Shard, group: Group) -> None:
    for member in group.members.values():
        reply_to = group.take_join(member)
        if reply_to is not None:
            shard.reply(reply_to, join_response(group, member))
        member.is_new = False
        shard.set_timer(member.timer, member.session_timeout_ms)
        group.pending_sync.add(member.member_id)
    shard.set_timer(group.sync_timer, group.rebalance_timeout_ms)
