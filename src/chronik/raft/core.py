"""`RaftNode`: one member of a Raft cluster as a value that a driver moves.

    tick / step / propose     change memory only
    ready                     what to write, then send, then apply
    advance                   it is done: own votes and entries count from here

The driver writes `hard_state`, `entries` and `snapshot` durably before it sends any message of the
same Ready: votes and acknowledgements are promises about the disk (figure 2: "updated on stable
storage before responding").
"""

from dataclasses import dataclass

from chronik.raft import candidate, follower, leader
from chronik.raft.codec import decode_conf_change, encode_conf_change
from chronik.raft.config import RaftConfig
from chronik.raft.log import RaftLog
from chronik.raft.membership import apply_change, from_conf_state
from chronik.raft.messages import (
    AppendEntries,
    AppendResponse,
    ConfChange,
    ConfState,
    Entry,
    EntryType,
    ForwardedMessage,
    HardState,
    Heartbeat,
    InstallSnapshot,
    Message,
    NodeId,
    Position,
    Propose,
    ReadIndexRequest,
    RequestVote,
    Snapshot,
    Stored,
    TermMessage,
    TimeoutNow,
    TransferLeadership,
    VoteResponse,
)
from chronik.raft.progress import ProgressState
from chronik.raft.state import (
    Draw,
    DropReason,
    ProposalDropped,
    RaftState,
    ReadState,
    Role,
)


@dataclass(frozen=True, slots=True)
class SoftState:
    """What is worth knowing and need not be stored."""

    role: Role
    leader: NodeId | None


@dataclass(frozen=True, slots=True)
class Ready:
    """Work for the driver, in this order: write, send, apply, `advance`."""

    hard_state: HardState | None
    """To write; None if it has not changed."""
    entries: tuple[Entry, ...]
    """To write; they replace whatever is stored from the first one's index on."""
    snapshot: Snapshot | None
    """To write before the entries, and to apply: it replaces log and state."""
    messages: tuple[Message, ...]
    """To send, after all the above is durable."""
    committed_entries: tuple[Entry, ...]
    """To apply, after the snapshot."""
    read_states: tuple[ReadState, ...]
    soft_state: SoftState | None
    """None if it has not changed."""


class RaftNode:
    """One member. Every call is synchronous and touches nothing but this object."""

    log_type: type[RaftLog] = RaftLog
    """A seam for the simulator's planted bugs."""

    def __init__(self, config: RaftConfig, stored: Stored, draw: Draw) -> None:
        log = self.log_type(stored.hard_state, stored.snapshot, stored.entries)
        self.state = RaftState(config, log, draw)
        self.state.members = from_conf_state(stored.conf_state)
        self.state.become_follower(stored.hard_state.term, None)
        self.state.vote = stored.hard_state.vote
        self._written = stored.hard_state
        self._soft_state = SoftState(Role.FOLLOWER, None)
        self._outstanding: Ready | None = None

    @property
    def id(self) -> NodeId:
        """This node."""
        return self.state.id

    @property
    def role(self) -> Role:
        """Follower, pre-candidate, candidate or leader."""
        return self.state.role

    @property
    def term(self) -> int:
        """The present term."""
        return self.state.term

    @property
    def leader(self) -> NodeId | None:
        """The leader of the present term, if it is known."""
        return self.state.leader

    @property
    def committed(self) -> int:
        """The commit index."""
        return self.state.log.committed

    @property
    def applied(self) -> int:
        """The last index that the driver has applied."""
        return self.state.log.applied

    @property
    def last_index(self) -> int:
        """The last entry of the log, committed or not."""
        return self.state.log.last_index

    @property
    def snapshot_index(self) -> int:
        """The index of the latest snapshot."""
        return self.state.log.snapshot.index

    @property
    def conf_state(self) -> ConfState:
        """The members as of `applied`."""
        return self.state.members.to_conf_state()

    # ---- input

    def tick(self) -> None:
        """The driver's clock has moved by one tick."""
        state = self.state
        if state.role is Role.LEADER:
            leader.tick(state)
            return
        state.election_elapsed += 1
        if state.election_elapsed >= state.election_timeout and state.is_promotable:
            state.election_elapsed = 0
            candidate.campaign(state)

    def campaign(self) -> bool:
        """Starts an election now; False if this node may not."""
        return candidate.campaign(self.state)

    def step(self, message: Message) -> None:
        """A message of a peer. Old, unknown and unwanted ones are ignored."""
        if message.to != self.id:
            return
        if isinstance(message, Propose | ReadIndexRequest | TransferLeadership):
            self._step_forwarded(message)
        elif message.term < self.term:
            self._answer_old_term(message)
        elif message.term == self.term or self._enter_term(message):
            self._step_present_term(message)

    def _enter_term(self, message: TermMessage) -> bool:
        """Follows a newer term (5.1), unless the message only asks or a lease is in its way."""
        state = self.state
        if isinstance(message, RequestVote) and self._has_lease and not message.transfer:
            # A removed or cut-off node shall not depose a leader that is heard (section 6).
            return False
        if isinstance(message, RequestVote) and message.pre_vote:
            return True
        if isinstance(message, VoteResponse) and message.pre_vote and message.granted:
            return True
        leads = isinstance(message, AppendEntries | Heartbeat | InstallSnapshot)
        state.become_follower(message.term, message.sender if leads else None)
        return True

    @property
    def _has_lease(self) -> bool:
        """True if the leader was heard within an election timeout."""
        state = self.state
        heard = state.election_elapsed < state.config.election_ticks
        return state.config.check_quorum and state.leader is not None and heard

    def _answer_old_term(self, message: TermMessage) -> None:
        """Figure 2: the sender hears of the newer term and steps down.

        Without it a member that was added again, and whose old members' votes it asks for, would
        stay ahead of its cluster for ever: its leader never hears of the term it is in.
        """
        state = self.state
        if isinstance(message, AppendEntries | Heartbeat | InstallSnapshot):
            state.send(AppendResponse(self.id, message.sender, self.term, 0, rejected=True))
        elif isinstance(message, RequestVote):
            candidate.respond(state, message, self.term, granted=False)

    def _step_present_term(self, message: TermMessage) -> None:
        state = self.state
        if isinstance(message, RequestVote | VoteResponse):
            candidate.learn_commit(state, message)
        if isinstance(message, RequestVote):
            candidate.answer(state, message)
        elif isinstance(message, TimeoutNow):
            if state.role is Role.FOLLOWER:
                candidate.campaign(state, transfer=True)
        elif state.role is Role.LEADER:
            leader.step(state, message)
        elif state.role is Role.FOLLOWER:
            follower.step(state, message)
        else:
            candidate.step(state, message)

    def _step_forwarded(self, message: ForwardedMessage) -> None:
        """A wish of another node; it hears nothing if it cannot be met, and asks again."""
        try:
            self._serve(message)
        except ProposalDropped:
            return

    def _serve(self, message: ForwardedMessage) -> Position | None:
        state = self.state
        if state.role is not Role.LEADER:
            follower.forward_own(state, message)
            return None
        if isinstance(message, Propose):
            return leader.propose(state, message.type, message.data)
        if isinstance(message, ReadIndexRequest):
            leader.read_index(state, message.sender, message.context)
        else:
            leader.transfer(state, message.target)
        return None

    def propose(self, data: bytes) -> Position | None:
        """Proposes an entry; None if it went to the leader, ProposalDropped if it went nowhere."""
        return self._propose(EntryType.NORMAL, data)

    def propose_conf_change(self, change: ConfChange) -> Position | None:
        """Proposes new members; as `propose`, and dropped if it does not fit the present ones."""
        return self._propose(EntryType.CONF_CHANGE, encode_conf_change(change))

    def _propose(self, entry_type: EntryType, data: bytes) -> Position | None:
        if self.role is not Role.LEADER and not self.state.config.forward_proposals:
            raise ProposalDropped(DropReason.NOT_LEADER)
        return self._serve(Propose(self.id, self.id, entry_type, data))

    def read_index(self, context: bytes) -> None:
        """Asks for a linearizable read; a ReadState with `context` follows, or nothing at all."""
        self._serve(ReadIndexRequest(self.id, self.id, context))

    def transfer_leadership(self, target: NodeId) -> None:
        """Asks the leader to hand over; given up after an election timeout."""
        self._serve(TransferLeadership(self.id, self.id, target))

    def best_successor(self) -> NodeId | None:
        """Whom a leader that goes away hands over to: the voter heard of lately that has most."""
        state = self.state
        if state.role is not Role.LEADER:
            return None
        others = [
            (state.progress[node].match, -node)
            for node in state.members.voters.ids - {state.id}
            if state.progress[node].is_recently_active
        ]
        return -max(others)[1] if others else None

    def report_unreachable(self, node: NodeId) -> None:
        """The transport could not deliver: appends in flight are taken as lost."""
        progress = self.state.progress.get(node)
        if self.role is not Role.LEADER or progress is None:
            return
        if progress.state is ProgressState.REPLICATE:
            progress.become_probe()

    def report_lost(self, node: NodeId, last_index: int) -> None:
        """A node has no more than `last_index`, whatever it has acknowledged: its disk was lost."""
        progress = self.state.progress.get(node)
        if self.role is not Role.LEADER or progress is None or progress.match <= last_index:
            return
        progress.match = last_index
        progress.become_probe()

    def report_snapshot(self, node: NodeId, *, ok: bool) -> None:
        """The transport has delivered a snapshot, or has not."""
        progress = self.state.progress.get(node)
        if self.role is not Role.LEADER or progress is None:
            return
        if progress.state is ProgressState.SNAPSHOT:
            if not ok:
                progress.snapshot_index = 0
            progress.become_probe()
            # Waits for the answer to the snapshot, or for the next heartbeat's.
            progress.is_paused = True

    # ---- output

    @property
    def _hard_state(self) -> HardState:
        return HardState(self.state.term, self.state.vote, self.state.log.committed)

    def has_ready(self) -> bool:
        """True if there is work for the driver and the last one is done."""
        state, log = self.state, self.state.log
        return self._outstanding is None and bool(
            state.messages
            or state.read_states
            or log.pending_snapshot is not None
            or log.persisted < log.last_index
            or log.applied < log.committed
            or self._hard_state != self._written
            or SoftState(state.role, state.leader) != self._soft_state
        )

    def ready(self) -> Ready:
        """The work of now; the next call comes after `advance`."""
        assert self._outstanding is None, "advance comes before the next ready"
        state, log = self.state, self.state.log
        hard_state, soft_state = self._hard_state, SoftState(state.role, state.leader)
        ready = Ready(
            hard_state=hard_state if hard_state != self._written else None,
            entries=log.unpersisted(),
            snapshot=log.pending_snapshot,
            messages=tuple(state.messages),
            committed_entries=log.committed_entries(state.config.committed_bytes_per_ready_max),
            read_states=tuple(state.read_states),
            soft_state=soft_state if soft_state != self._soft_state else None,
        )
        state.messages, state.read_states = [], []
        self._soft_state = soft_state
        self._outstanding = ready
        return ready

    def advance(self, ready: Ready) -> None:
        """Everything in `ready` is written, sent and applied."""
        assert ready is self._outstanding, "advance takes the last ready"
        self._outstanding = None
        if ready.hard_state is not None:
            self._written = ready.hard_state
        state, log = self.state, self.state.log
        if ready.snapshot is not None:
            log.snapshot_persisted(ready.snapshot)
        if ready.entries:
            log.persisted_to(ready.entries[-1].index, ready.entries[-1].term)
        self._applied(ready.committed_entries)
        if state.role is Role.LEADER:
            leader.own_entries_persisted(state)
        elif self._written.term == state.term and self._written.vote == self.id:
            candidate.own_vote_persisted(state)

    def _applied(self, entries: tuple[Entry, ...]) -> None:
        state = self.state
        if not entries:
            return
        covered = state.log.pending_snapshot.index if state.log.pending_snapshot else 0
        state.log.applied_to(entries[-1].index)
        for entry in entries:
            # A snapshot that came meanwhile brings its members along.
            if entry.type is EntryType.CONF_CHANGE and entry.index > covered:
                self._change_members(decode_conf_change(entry.data))
        if state.role is Role.LEADER:
            size = sum(len(entry.data) for entry in entries)
            state.uncommitted_bytes = max(0, state.uncommitted_bytes - size)
            leader.leave_joint_if_due(state)

    def _change_members(self, change: ConfChange) -> None:
        state = self.state
        state.set_members(apply_change(state.members, change))
        if state.role is Role.LEADER:
            leader.members_changed(state)

    # ---- snapshots

    def take_snapshot(self, data: bytes) -> Snapshot:
        """`data` is the application's state at `applied`; store it, then `compact`."""
        log = self.state.log
        assert log.pending_snapshot is None, "a newer snapshot waits to be applied"
        term = log.term(log.applied)
        assert term is not None
        return Snapshot(log.applied, term, self.conf_state, data)

    def compact(self, snapshot: Snapshot, keep: int = 0) -> None:
        """Drops entries that the stored snapshot covers, but for the last `keep`."""
        self.state.log.compact(snapshot, keep)
