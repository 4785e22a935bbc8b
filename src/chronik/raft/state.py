"""The state of one node, and the changes of role that every role may cause.

Roles are modules of functions over this one object: `leader`, `candidate` and `follower` import it,
`core` imports them, nothing points back.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from chronik.raft.config import RaftConfig
from chronik.raft.log import RaftLog
from chronik.raft.membership import Members
from chronik.raft.messages import Message, NodeId
from chronik.raft.progress import Inflights, Progress

Draw = Callable[[int], int]
"""draw(n) gives a number in [0, n): chance is the driver's."""


class Role(Enum):
    """Figure 4 of the paper, with the thesis' pre-vote."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class DropReason(Enum):
    """Why a wish cannot be met now."""

    NO_LEADER = "no leader is known"
    NOT_LEADER = "this node does not lead and does not forward"
    TRANSFERRING = "leadership is being transferred"
    TOO_MUCH_UNCOMMITTED = "too many bytes wait for their commit"
    TOO_MANY_READS = "too many reads wait for their confirmation"
    NOT_MEMBER = "this node was removed from the cluster"
    CONF_CHANGE_PENDING = "an earlier change of members is not applied yet"
    CONF_CHANGE_INVALID = "the change of members does not fit the present members"


class ProposalDropped(Exception):  # noqa: N818 - the word of the Raft libraries
    """Nothing happened; whether to try again is the caller's business."""

    def __init__(self, reason: DropReason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ReadState:
    """The read `context` sees everything acknowledged before it, once `index` is applied."""

    index: int
    context: bytes


@dataclass(frozen=True, slots=True)
class PendingRead:
    """A read that waits until a quorum has confirmed the leader in `round`."""

    round: int
    index: int
    requester: NodeId
    context: bytes


class RaftState:
    """Everything a node knows. Only the last block means something to a leader alone."""

    __slots__ = (
        "config",
        "draw",
        "election_elapsed",
        "election_timeout",
        "heartbeat_elapsed",
        "id",
        "leader",
        "log",
        "members",
        "messages",
        "pending_conf_index",
        "pending_reads",
        "progress",
        "read_round",
        "read_rounds_acked",
        "read_states",
        "reads_before_first_commit",
        "role",
        "term",
        "transferee",
        "uncommitted_bytes",
        "vote",
        "votes",
    )

    def __init__(self, config: RaftConfig, log: RaftLog, draw: Draw) -> None:
        self.id = config.node_id
        self.config = config
        self.log = log
        self.draw = draw
        self.role = Role.FOLLOWER
        self.term = 0
        self.vote: NodeId | None = None
        self.leader: NodeId | None = None
        self.members = Members()
        self.votes: dict[NodeId, bool] = {}
        self.messages: list[Message] = []
        self.read_states: list[ReadState] = []
        self.election_elapsed = 0
        self.heartbeat_elapsed = 0
        self.election_timeout = 0

        self.progress: dict[NodeId, Progress] = {}
        self.transferee: NodeId | None = None
        self.pending_conf_index = 0
        self.uncommitted_bytes = 0
        self.read_round = 0
        self.read_rounds_acked: dict[NodeId, int] = {}
        self.pending_reads: list[PendingRead] = []
        self.reads_before_first_commit: list[tuple[NodeId, bytes]] = []

    def send(self, message: Message) -> None:
        """Queues a message; it leaves after the state it speaks of is on disk."""
        assert message.to != self.id, "a node does not write to itself"
        self.messages.append(message)

    @property
    def is_promotable(self) -> bool:
        """True if the node may campaign: a voter whose log is whole."""
        return self.id in self.members.voters.ids and self.log.pending_snapshot is None

    def reset(self, term: int) -> None:
        """What every change of role or term starts from."""
        if term != self.term:
            assert term > self.term, "terms only rise"
            self.term, self.vote = term, None
        self.leader = None
        self.votes = {}
        self.election_elapsed = self.heartbeat_elapsed = 0
        self.draw_election_timeout()
        self.transferee = None
        self.pending_conf_index = 0
        self.uncommitted_bytes = 0
        self.read_round = 0
        self.read_rounds_acked = {}
        self.pending_reads = []
        self.reads_before_first_commit = []
        self.reset_progress()

    def draw_election_timeout(self) -> None:
        """A new timeout each time, so that split votes end (5.2)."""
        ticks = self.config.election_ticks
        self.election_timeout = ticks + self.draw(ticks)

    def reset_progress(self) -> None:
        """A leader starts by assuming that everybody has what it has."""
        next_index = self.log.last_index + 1
        self.progress = {node: self.new_progress(node, next_index) for node in self.members.ids}
        own = self.progress.get(self.id)
        if own is not None:
            own.match = self.log.persisted

    def new_progress(self, node: NodeId, next_index: int) -> Progress:
        """A member about whose log nothing is known."""
        window = Inflights(self.config.inflight_messages_max, self.config.inflight_bytes_max)
        return Progress(next_index, window, is_learner=node in self.members.learners)

    def set_members(self, members: Members) -> None:
        """New members take effect; what is known about those who stay is kept."""
        self.members = members
        next_index = max(self.log.last_index, 1)
        kept = self.progress
        self.progress = {
            node: kept.get(node) or self.new_progress(node, next_index) for node in members.ids
        }
        for node, progress in self.progress.items():
            progress.is_learner = node in members.learners

    def become_follower(self, term: int, leader: NodeId | None) -> None:
        """Steps down, or follows somebody else."""
        self.reset(term)
        self.role = Role.FOLLOWER
        self.leader = leader

    def become_pre_candidate(self) -> None:
        """Asks around without a new term, so that a cut-off node disturbs nobody (thesis 9.6)."""
        assert self.role is not Role.LEADER
        self.votes = {}
        self.leader = None
        self.role = Role.PRE_CANDIDATE

    def become_candidate(self) -> None:
        """A new term and a vote for itself, counted once both are on disk."""
        assert self.role is not Role.LEADER
        self.reset(self.term + 1)
        self.vote = self.id
        self.role = Role.CANDIDATE

    def become_leader(self) -> None:
        """The election is won; `leader.start` appends the first entry of the term."""
        assert self.role is Role.CANDIDATE
        self.reset(self.term)
        self.role = Role.LEADER
        self.leader = self.id
        # Earlier changes of members must be applied before a new one is proposed.
        self.pending_conf_index = self.log.last_index
