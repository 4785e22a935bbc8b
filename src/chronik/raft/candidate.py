"""Elections: asking for votes, counting them, giving them (5.2, 5.4.1, thesis 9.6)."""

from chronik.raft import follower, leader
from chronik.raft.messages import (
    AppendEntries,
    EntryType,
    Heartbeat,
    InstallSnapshot,
    NodeId,
    RequestVote,
    TermMessage,
    VoteResponse,
)
from chronik.raft.quorum import VoteResult
from chronik.raft.state import RaftState, Role


def campaign(state: RaftState, *, transfer: bool = False) -> bool:
    """Starts an election if this node may; the pre-vote comes first where it is on."""
    if state.role is Role.LEADER or not state.is_promotable or _has_unapplied_conf_change(state):
        return False
    if state.config.pre_vote and not transfer:
        _ask_pre_votes(state)
    else:
        _ask_votes(state, transfer=transfer)
    return True


def _has_unapplied_conf_change(state: RaftState) -> bool:
    # With members that are out of date it would ask the wrong majority.
    log = state.log
    waiting = log.slice(log.applied + 1, log.committed)
    return any(entry.type is EntryType.CONF_CHANGE for entry in waiting)


def _ask_pre_votes(state: RaftState) -> None:
    state.become_pre_candidate()
    state.election_elapsed = 0
    state.draw_election_timeout()
    _ask(state, term=state.term + 1, pre_vote=True, transfer=False)
    # Nothing is promised by a pre-vote, so the own one needs no disk.
    _record(state, state.id, granted=True)


def _ask_votes(state: RaftState, *, transfer: bool) -> None:
    state.become_candidate()
    _ask(state, term=state.term, pre_vote=False, transfer=transfer)


def _ask(state: RaftState, *, term: int, pre_vote: bool, transfer: bool) -> None:
    for node in sorted(state.members.voters.ids - {state.id}):
        state.send(
            RequestVote(
                sender=state.id,
                to=node,
                term=term,
                last_index=state.log.last_index,
                last_term=state.log.last_term,
                pre_vote=pre_vote,
                transfer=transfer,
                commit=state.log.committed,
                commit_term=state.log.committed_term,
            )
        )


def own_vote_persisted(state: RaftState) -> None:
    """Term and vote are on disk: now the own vote counts."""
    if state.role is Role.CANDIDATE:
        _record(state, state.id, granted=True)


def step(state: RaftState, message: TermMessage) -> None:
    """A message of the present term."""
    if isinstance(message, AppendEntries | Heartbeat | InstallSnapshot):
        # Somebody else has won.
        state.become_follower(message.term, message.sender)
        follower.obey(state, message)
    elif isinstance(message, VoteResponse) and _is_for_this_election(state, message):
        _record(state, message.sender, granted=message.granted)


def _is_for_this_election(state: RaftState, message: VoteResponse) -> bool:
    if state.role is Role.PRE_CANDIDATE:
        return message.pre_vote and message.term == state.term + (1 if message.granted else 0)
    return not message.pre_vote


def _record(state: RaftState, voter: NodeId, *, granted: bool) -> None:
    state.votes.setdefault(voter, granted)
    result = state.members.voters.vote(state.votes)
    if result is VoteResult.LOST:
        state.become_follower(state.term, None)
    elif result is VoteResult.WON and state.role is Role.PRE_CANDIDATE:
        _ask_votes(state, transfer=False)
    elif result is VoteResult.WON:
        leader.start(state)


def answer(state: RaftState, message: RequestVote) -> None:
    """Gives or refuses a vote; the answer leaves when the vote is on disk."""
    granted = _may_vote(state, message) and state.log.is_up_to_date(
        message.last_index, message.last_term
    )
    # A granted pre-vote speaks of the term that was asked for, a refusal of the own one.
    respond(state, message, message.term if granted else state.term, granted=granted)
    if granted and not message.pre_vote:
        state.election_elapsed = 0
        state.vote = message.sender


def respond(state: RaftState, message: RequestVote, term: int, *, granted: bool) -> None:
    """Answers a request for a vote, and says what is known to be committed."""
    state.send(
        VoteResponse(
            sender=state.id,
            to=message.sender,
            term=term,
            granted=granted,
            pre_vote=message.pre_vote,
            commit=state.log.committed,
            commit_term=state.log.committed_term,
        )
    )


def learn_commit(state: RaftState, message: RequestVote | VoteResponse) -> None:
    """Takes over the commit index of somebody who knows more, if this log has that entry.

    Members change when their entry is applied. Those who have applied the end of a joint
    configuration and left by it may hold the longest logs, yet cannot lead; those who stay do not
    know that it is committed, and need the votes of those who left. Nobody would ever win (etcd's
    issue 12359). An entry of equal index and term is the same entry (5.3), so it is committed here.
    """
    log = state.log
    if state.role is Role.LEADER or not log.matches(message.commit, message.commit_term):
        return
    is_campaigning = state.role in (Role.CANDIDATE, Role.PRE_CANDIDATE)
    if log.commit_to(message.commit) and is_campaigning and _has_unapplied_conf_change(state):
        # The votes so far were counted by members that no longer decide.
        state.become_follower(state.term, None)


def _may_vote(state: RaftState, message: RequestVote) -> bool:
    if not state.members.voters.ids:
        # A node that knows no cluster may have been wiped, and have voted before that.
        return False
    if message.pre_vote and message.term > state.term:
        return True
    if state.vote is None:
        return state.leader is None
    return state.vote == message.sender
