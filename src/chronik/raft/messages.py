"""What nodes say to each other and what they write down: plain frozen values.

Node ids are Kafka's (0 is a valid one), so "nobody" is None and never a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

NodeId = int


class EntryType(IntEnum):
    """What an entry's data means."""

    NORMAL = 0
    CONF_CHANGE = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the replicated log; empty data is a new leader's first entry (section 8)."""

    term: int
    index: int
    type: EntryType = EntryType.NORMAL
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class HardState:
    """What a node must find again after a restart, or it would vote twice in a term (5.2)."""

    term: int = 0
    vote: NodeId | None = None
    commit: int = 0


@dataclass(frozen=True, slots=True)
class ConfState:
    """The members as a snapshot stores them; joint if `voters_outgoing` is not empty."""

    voters: tuple[NodeId, ...] = ()
    voters_outgoing: tuple[NodeId, ...] = ()
    learners: tuple[NodeId, ...] = ()
    learners_next: tuple[NodeId, ...] = ()
    auto_leave: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The application's state after `index`, with the members at that point (section 7)."""

    index: int = 0
    term: int = 0
    conf_state: ConfState = ConfState()
    data: bytes = b""


class Stored(NamedTuple):
    """What a node finds on its disk when it starts; `conf_state` is the snapshot's."""

    hard_state: HardState
    conf_state: ConfState
    snapshot: Snapshot
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a proposal was put; committed if the entry applied at `index` has this `term`."""

    index: int
    term: int


class ConfChangeType(IntEnum):
    """What happens to one member."""

    ADD_VOTER = 0
    REMOVE = 1
    ADD_LEARNER = 2


class ConfChangeTransition(IntEnum):
    """AUTO makes one change in one step, and several jointly with an automatic end."""

    AUTO = 0
    JOINT_IMPLICIT = 1
    JOINT_EXPLICIT = 2


@dataclass(frozen=True, slots=True)
class MemberChange:
    """One member's part of a change."""

    type: ConfChangeType
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class ConfChange:
    """A change of members; without any change and transition it leaves the joint configuration."""

    changes: tuple[MemberChange, ...] = ()
    transition: ConfChangeTransition = ConfChangeTransition.AUTO
    context: bytes = b""


@dataclass(frozen=True, slots=True)
class RequestVote:
    """5.2; with `pre_vote` it asks what the answer would be and changes nothing (thesis 9.6)."""

    sender: NodeId
    to: NodeId
    term: int
    last_index: int
    last_term: int
    pre_vote: bool = False
    transfer: bool = False
    """The old leader asked for this election, so leases do not stand against it (thesis 3.10)."""
    commit: int = 0
    """The last entry that the sender knows to be committed, see `candidate.learn_commit`."""
    commit_term: int = 0


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """Answer to RequestVote; a granted pre-vote carries the term that was asked for."""

    sender: NodeId
    to: NodeId
    term: int
    granted: bool
    pre_vote: bool = False
    commit: int = 0
    commit_term: int = 0


@dataclass(frozen=True, slots=True)
class AppendEntries:
    """5.3."""

    sender: NodeId
    to: NodeId
    term: int
    prev_index: int
    prev_term: int
    commit: int
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class AppendResponse:
    """`index` is the last that matches, or the refused `prev_index` with a hint where to look."""

    sender: NodeId
    to: NodeId
    term: int
    index: int
    rejected: bool = False
    hint_index: int = 0
    hint_term: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """`commit` never passes what the follower is known to have; `round` confirms reads."""

    sender: NodeId
    to: NodeId
    term: int
    commit: int
    round: int = 0


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """Confirms the leader for every read up to `round`."""

    sender: NodeId
    to: NodeId
    term: int
    round: int = 0


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Section 7, in one piece."""

    sender: NodeId
    to: NodeId
    term: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """The leader asks a follower with a full log to campaign at once (thesis 3.10)."""

    sender: NodeId
    to: NodeId
    term: int


@dataclass(frozen=True, slots=True)
class Propose:
    """A proposal on its way to the leader; dropped there without an answer if it must be."""

    sender: NodeId
    to: NodeId
    type: EntryType
    data: bytes


@dataclass(frozen=True, slots=True)
class ReadIndexRequest:
    """A follower's read on its way to the leader (thesis 6.4)."""

    sender: NodeId
    to: NodeId
    context: bytes


@dataclass(frozen=True, slots=True)
class ReadIndexResponse:
    """The read `context` may be served once `index` is applied."""

    sender: NodeId
    to: NodeId
    term: int
    index: int
    context: bytes


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """A wish for another leader, on its way to the present one."""

    sender: NodeId
    to: NodeId
    target: NodeId


TermMessage = (
    RequestVote
    | VoteResponse
    | AppendEntries
    | AppendResponse
    | Heartbeat
    | HeartbeatResponse
    | InstallSnapshot
    | TimeoutNow
    | ReadIndexResponse
)
"""Messages of a term: an old one is refused, a new one makes the receiver a follower."""
ForwardedMessage = Propose | ReadIndexRequest | TransferLeadership
"""A client's wish passed on; it belongs to no term."""
Message = TermMessage | ForwardedMessage
