"""What a follower does with its leader's messages; candidates that meet a leader do the same."""

from dataclasses import replace

from chronik.raft.membership import from_conf_state
from chronik.raft.messages import (
    AppendEntries,
    AppendResponse,
    ForwardedMessage,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    ReadIndexResponse,
    Snapshot,
    TermMessage,
)
from chronik.raft.state import DropReason, ProposalDropped, RaftState, ReadState


def step(state: RaftState, message: TermMessage) -> None:
    """A message of the present term."""
    if isinstance(message, AppendEntries | Heartbeat | InstallSnapshot):
        assert state.leader in (None, message.sender), "two leaders in one term"
        obey(state, message)
    elif isinstance(message, ReadIndexResponse):
        state.read_states.append(ReadState(message.index, message.context))


def obey(state: RaftState, message: AppendEntries | Heartbeat | InstallSnapshot) -> None:
    """Hears from the leader of this term."""
    state.election_elapsed = 0
    state.leader = message.sender
    if isinstance(message, AppendEntries):
        append(state, message)
    elif isinstance(message, Heartbeat):
        beat(state, message)
    else:
        install(state, message)


def append(state: RaftState, message: AppendEntries) -> None:
    """5.3: takes the entries if the one before them matches."""
    log = state.log
    if message.prev_index < log.committed:
        # An old message: what is committed here is known to match.
        _acknowledge(state, message.sender, log.committed)
    elif log.matches(message.prev_index, message.prev_term):
        log.merge(message.entries)
        last_new = message.prev_index + len(message.entries)
        log.commit_to(min(message.commit, last_new))
        _acknowledge(state, message.sender, last_new)
    else:
        hint_index, hint_term = log.find_conflict(message.prev_index, message.prev_term)
        state.send(
            AppendResponse(
                sender=state.id,
                to=message.sender,
                term=state.term,
                index=message.prev_index,
                rejected=True,
                hint_index=hint_index,
                hint_term=hint_term,
            )
        )


def beat(state: RaftState, message: Heartbeat) -> None:
    """Moves the commit index; confirms the leader."""
    # The leader never states more than this node has acknowledged. More than the log holds means
    # that the log was wiped: nothing may be committed then.
    if message.commit <= state.log.last_index:
        state.log.commit_to(message.commit)
    state.send(HeartbeatResponse(state.id, message.sender, state.term, message.round))


def install(state: RaftState, message: InstallSnapshot) -> None:
    """Section 7."""
    if _restore(state, message.snapshot):
        _acknowledge(state, message.sender, state.log.last_index)
    else:
        _acknowledge(state, message.sender, state.log.committed)


def _restore(state: RaftState, snapshot: Snapshot) -> bool:
    log = state.log
    if snapshot.index <= log.committed:
        return False
    if log.matches(snapshot.index, snapshot.term):
        # The log has it all and only did not know that it is committed.
        log.commit_to(snapshot.index)
        return False
    log.restore(snapshot)
    # It may not name this node yet: the entry that adds it comes after the snapshot.
    state.members = from_conf_state(snapshot.conf_state)
    state.reset_progress()
    return True


def _acknowledge(state: RaftState, leader: int, index: int) -> None:
    state.send(AppendResponse(state.id, leader, state.term, index))


def forward_own(state: RaftState, message: ForwardedMessage) -> None:
    """Passes an own wish on to the leader; others' go one hop only, so none runs in circles."""
    if state.leader is None:
        raise ProposalDropped(DropReason.NO_LEADER)
    if message.sender != state.id:
        raise ProposalDropped(DropReason.NOT_LEADER)
    state.send(replace(message, to=state.leader))
