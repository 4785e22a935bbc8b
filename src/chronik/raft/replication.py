"""How a leader brings its log to the others: appends, snapshots, flow control, the commit index."""

from chronik.raft.messages import AppendEntries, AppendResponse, Heartbeat, InstallSnapshot, NodeId
from chronik.raft.progress import Progress, ProgressState
from chronik.raft.state import RaftState


def broadcast_append(state: RaftState) -> None:
    """Sends everybody what they lack, or at least the commit index."""
    for node in others(state):
        send_append(state, node)


def broadcast_heartbeat(state: RaftState) -> None:
    """Tells everybody who leads; the round confirms the reads that wait."""
    for node in others(state):
        commit = min(state.progress[node].match, state.log.committed)
        state.send(Heartbeat(state.id, node, state.term, commit, state.read_round))


def others(state: RaftState) -> list[NodeId]:
    """Everybody who gets the log, but this node; in order, so that runs repeat."""
    return sorted(node for node in state.progress if node != state.id)


def send_append(state: RaftState, node: NodeId, *, even_if_empty: bool = True) -> bool:
    """Sends one message if the follower's window allows it; False if nothing was sent."""
    progress, log = state.progress[node], state.log
    if not progress.can_send:
        return False
    prev_index = progress.next - 1
    prev_term = log.term(prev_index)
    if prev_term is None:
        return _send_snapshot(state, node, progress)
    entries = (
        log.slice(progress.next, log.last_index, state.config.message_bytes_max)
        if progress.can_send_entries
        else ()
    )
    if not entries and not even_if_empty:
        return False
    state.send(
        AppendEntries(state.id, node, state.term, prev_index, prev_term, log.committed, entries)
    )
    progress.sent(len(entries), sum(len(entry.data) for entry in entries))
    return True


def _send_snapshot(state: RaftState, node: NodeId, progress: Progress) -> bool:
    if not progress.is_recently_active:
        # Snapshots are large: not to somebody who does not answer.
        return False
    progress.become_snapshot(state.log.snapshot.index)
    state.send(InstallSnapshot(state.id, node, state.term, state.log.snapshot))
    return True


def commit(state: RaftState) -> bool:
    """Moves the commit index to what a quorum has on disk."""
    acked = {node: progress.match for node, progress in state.progress.items()}
    return state.log.commit_counted(state.members.voters.committed(acked), state.term)


def on_rejected(state: RaftState, progress: Progress, message: AppendResponse) -> None:
    """The follower's log differs before `index`: looks for where they meet."""
    hint = message.hint_index
    if message.hint_term > 0:
        hint, _ = state.log.find_conflict(message.hint_index, message.hint_term)
    if progress.step_back(message.index, hint):
        if progress.state is ProgressState.REPLICATE:
            progress.become_probe()
        send_append(state, message.sender)


def on_acknowledged(state: RaftState, progress: Progress, index: int) -> bool:
    """The follower has everything up to `index`; False for old news."""
    found_by_probe = progress.state is ProgressState.PROBE and progress.match == index
    if not progress.acknowledge(index) and not found_by_probe:
        return False
    if progress.state is ProgressState.PROBE:
        progress.become_replicate()
    elif progress.state is ProgressState.SNAPSHOT:
        if progress.match >= state.log.base_index:
            # What it has now meets this log, through the snapshot or otherwise.
            progress.become_replicate()
    else:
        progress.inflights.free_to(index)
    return True
