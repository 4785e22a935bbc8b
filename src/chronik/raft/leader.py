"""What a leader does: proposals, answers of followers, reads, leadership transfer, ticks."""

from chronik.raft import replication
from chronik.raft.codec import decode_conf_change, encode_conf_change
from chronik.raft.config import ReadMode
from chronik.raft.membership import MembershipError, apply_change
from chronik.raft.messages import (
    AppendResponse,
    ConfChange,
    Entry,
    EntryType,
    HeartbeatResponse,
    NodeId,
    Position,
    ReadIndexResponse,
    TermMessage,
    TimeoutNow,
)
from chronik.raft.progress import Progress, ProgressState
from chronik.raft.state import DropReason, PendingRead, ProposalDropped, RaftState, ReadState, Role


def start(state: RaftState) -> None:
    """The election is won: an empty entry of the new term lets older ones commit (5.4.2, 8)."""
    state.become_leader()
    state.progress[state.id].become_replicate()
    _append(state, EntryType.NORMAL, b"")
    replication.broadcast_append(state)


def step(state: RaftState, message: TermMessage) -> None:
    """A follower's answer in the present term."""
    progress = state.progress.get(message.sender)
    if progress is None:
        return
    if isinstance(message, AppendResponse):
        progress.is_recently_active = True
        _on_append_response(state, progress, message)
    elif isinstance(message, HeartbeatResponse):
        progress.is_recently_active = True
        _on_heartbeat_response(state, progress, message)


def _on_append_response(state: RaftState, progress: Progress, message: AppendResponse) -> None:
    if message.rejected:
        replication.on_rejected(state, progress, message)
        return
    was_held_back = not progress.can_send or not progress.can_send_entries
    if not replication.on_acknowledged(state, progress, message.index):
        return
    if replication.commit(state):
        on_commit(state)
    elif was_held_back:
        # It may still lack the commit index of messages that were not sent.
        replication.send_append(state, message.sender)
    while replication.send_append(state, message.sender, even_if_empty=False):
        pass
    if message.sender == state.transferee and progress.match == state.log.last_index:
        state.send(TimeoutNow(state.id, message.sender, state.term))


def _on_heartbeat_response(
    state: RaftState, progress: Progress, message: HeartbeatResponse
) -> None:
    progress.is_paused = False
    if progress.match < state.log.last_index or progress.state is ProgressState.PROBE:
        replication.send_append(state, message.sender)
    acked = state.read_rounds_acked
    acked[message.sender] = max(acked.get(message.sender, 0), message.round)
    _release_reads(state)


def own_entries_persisted(state: RaftState) -> None:
    """The own disk counts as any other member's."""
    own = state.progress.get(state.id)
    if own is not None and own.acknowledge(state.log.persisted) and replication.commit(state):
        on_commit(state)


def on_commit(state: RaftState) -> None:
    """The commit index has moved: the others hear of it, and reads may start."""
    waiting, state.reads_before_first_commit = state.reads_before_first_commit, []
    for requester, context in waiting:
        read_index(state, requester, context)
    replication.broadcast_append(state)


def tick(state: RaftState) -> None:
    """Heartbeats, and once per election timeout the question whether anybody still listens."""
    state.heartbeat_elapsed += 1
    state.election_elapsed += 1
    _give_up_snapshots(state)
    if state.election_elapsed >= state.config.election_ticks:
        state.election_elapsed = 0
        state.transferee = None
        if state.config.check_quorum:
            _check_quorum(state)
    if state.role is Role.LEADER and state.heartbeat_elapsed >= state.config.heartbeat_ticks:
        state.heartbeat_elapsed = 0
        replication.broadcast_heartbeat(state)
        leave_joint_if_due(state)


def _check_quorum(state: RaftState) -> None:
    active = {node for node, progress in state.progress.items() if progress.is_recently_active}
    if not state.members.voters.is_active(active | {state.id}):
        state.become_follower(state.term, None)
        return
    for progress in state.progress.values():
        progress.is_recently_active = False


def _give_up_snapshots(state: RaftState) -> None:
    # A lost snapshot is not reported by every transport; without this its follower waits for ever.
    for progress in state.progress.values():
        if progress.state is ProgressState.SNAPSHOT:
            progress.snapshot_ticks += 1
            if progress.snapshot_ticks >= state.config.snapshot_resend_ticks:
                progress.snapshot_index = 0
                progress.become_probe()


def propose(state: RaftState, entry_type: EntryType, data: bytes) -> Position:
    """Appends one entry; raises ProposalDropped where it cannot be taken."""
    if state.id not in state.progress:
        raise ProposalDropped(DropReason.NOT_MEMBER)
    if state.transferee is not None:
        raise ProposalDropped(DropReason.TRANSFERRING, f"to {state.transferee}")
    if entry_type is EntryType.CONF_CHANGE:
        _check_conf_change(state, decode_conf_change(data))
    size = len(data)
    # An empty leader takes anything, so that one large entry is never refused for ever.
    is_full = state.uncommitted_bytes + size > state.config.uncommitted_bytes_max
    if is_full and state.uncommitted_bytes > 0 and size > 0:
        raise ProposalDropped(DropReason.TOO_MUCH_UNCOMMITTED)
    return _replicate(state, entry_type, data)


def _replicate(state: RaftState, entry_type: EntryType, data: bytes) -> Position:
    position = _append(state, entry_type, data)
    if entry_type is EntryType.CONF_CHANGE:
        state.pending_conf_index = position.index
    replication.broadcast_append(state)
    return position


def _append(state: RaftState, entry_type: EntryType, data: bytes) -> Position:
    entry = Entry(state.term, state.log.last_index + 1, entry_type, data)
    state.log.append((entry,))
    state.uncommitted_bytes += len(data)
    return Position(entry.index, entry.term)


def _check_conf_change(state: RaftState, change: ConfChange) -> None:
    # One at a time: until it is applied nobody knows which majority decides.
    if state.pending_conf_index > state.log.applied:
        raise ProposalDropped(DropReason.CONF_CHANGE_PENDING, f"at {state.pending_conf_index}")
    try:
        apply_change(state.members, change)
    except MembershipError as error:
        raise ProposalDropped(DropReason.CONF_CHANGE_INVALID, str(error)) from error


def leave_joint_if_due(state: RaftState) -> None:
    """A joint configuration that leaves by itself does so once it is applied."""
    due = state.members.auto_leave and state.pending_conf_index <= state.log.applied
    if due and state.transferee is None:
        _replicate(state, EntryType.CONF_CHANGE, encode_conf_change(ConfChange()))


def read_index(state: RaftState, requester: NodeId, context: bytes) -> None:
    """Thesis 6.4: a read may be served at the commit index of now, if this node still leads."""
    log = state.log
    if len(state.pending_reads) + len(state.reads_before_first_commit) >= (
        state.config.pending_reads_max
    ):
        raise ProposalDropped(DropReason.TOO_MANY_READS)
    if not log.matches(log.committed, state.term):
        # Before its first commit a leader does not know what is committed.
        state.reads_before_first_commit.append((requester, context))
    elif state.config.read_mode is ReadMode.LEASE:
        _answer_read(state, PendingRead(0, log.committed, requester, context))
    else:
        state.read_round += 1
        state.read_rounds_acked[state.id] = state.read_round
        state.pending_reads.append(PendingRead(state.read_round, log.committed, requester, context))
        replication.broadcast_heartbeat(state)
        _release_reads(state)


def _release_reads(state: RaftState) -> None:
    confirmed = state.members.voters.committed(state.read_rounds_acked)
    ready = [read for read in state.pending_reads if read.round <= confirmed]
    if ready:
        state.pending_reads = state.pending_reads[len(ready) :]
    for read in ready:
        _answer_read(state, read)


def _answer_read(state: RaftState, read: PendingRead) -> None:
    if read.requester == state.id:
        state.read_states.append(ReadState(read.index, read.context))
    else:
        state.send(
            ReadIndexResponse(state.id, read.requester, state.term, read.index, read.context)
        )


def transfer(state: RaftState, target: NodeId) -> None:
    """Thesis 3.10: brings the target up to date, then asks it to campaign."""
    if target == state.id or target not in state.members.voters.ids or target == state.transferee:
        return
    state.election_elapsed = 0
    state.transferee = target
    if state.progress[target].match == state.log.last_index:
        state.send(TimeoutNow(state.id, target, state.term))
    else:
        replication.send_append(state, target)


def members_changed(state: RaftState) -> None:
    """New members are in effect: some commit at once, some need the log."""
    if state.id not in state.members.voters.ids:
        # Removed or made a learner: the others elect somebody among themselves.
        state.become_follower(state.term, None)
        return
    if state.transferee is not None and state.transferee not in state.members.voters.ids:
        state.transferee = None
    if replication.commit(state):
        on_commit(state)
    else:
        replication.broadcast_append(state)
    _release_reads(state)
