"""Majorities: which index a set of voters has committed, and how a vote stands.

A joint configuration needs both majorities (section 6). An empty set agrees to everything, so a
joint configuration with an empty half behaves as its other half.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from chronik.raft.messages import NodeId

UNBOUNDED = (1 << 63) - 1
"""What an empty set of voters has committed: no limit."""


class VoteResult(Enum):
    """PENDING may still become either."""

    PENDING = "pending"
    LOST = "lost"
    WON = "won"


def majority_committed(voters: AbstractSet[NodeId], acked: Mapping[NodeId, int]) -> int:
    """The highest index that more than half of the voters have acknowledged."""
    if not voters:
        return UNBOUNDED
    ranked = sorted(acked.get(voter, 0) for voter in voters)
    return ranked[len(ranked) - (len(ranked) // 2 + 1)]


def majority_vote(voters: AbstractSet[NodeId], votes: Mapping[NodeId, bool]) -> VoteResult:
    """How the vote stands; a voter missing in `votes` has not answered."""
    if not voters:
        return VoteResult.WON
    needed = len(voters) // 2 + 1
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    refused = sum(1 for voter in voters if votes.get(voter) is False)
    if granted >= needed:
        return VoteResult.WON
    return VoteResult.LOST if len(voters) - refused < needed else VoteResult.PENDING


@dataclass(frozen=True, slots=True)
class Quorum:
    """The voters; `outgoing` is not empty while the configuration is joint."""

    incoming: frozenset[NodeId] = frozenset()
    outgoing: frozenset[NodeId] = frozenset()

    @property
    def is_joint(self) -> bool:
        """True between entering and leaving a joint configuration."""
        return bool(self.outgoing)

    @property
    def ids(self) -> frozenset[NodeId]:
        """Everybody with a vote."""
        return self.incoming | self.outgoing

    def committed(self, acked: Mapping[NodeId, int]) -> int:
        """The highest index acknowledged by both majorities."""
        return min(
            majority_committed(self.incoming, acked), majority_committed(self.outgoing, acked)
        )

    def vote(self, votes: Mapping[NodeId, bool]) -> VoteResult:
        """Won if both majorities grant it, lost as soon as one cannot."""
        results = {majority_vote(self.incoming, votes), majority_vote(self.outgoing, votes)}
        if VoteResult.LOST in results:
            return VoteResult.LOST
        return VoteResult.PENDING if VoteResult.PENDING in results else VoteResult.WON

    def is_active(self, active: Iterable[NodeId]) -> bool:
        """True if the active nodes alone could decide."""
        alive = set(active)
        return self.vote({voter: voter in alive for voter in self.ids}) is VoteResult.WON
