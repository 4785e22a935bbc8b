"""What must hold in a Raft cluster after every event (figure 3), and what clients were promised.

The judge sees everything and keeps its own books; it never asks the code under test whether it is
right. It looks at one node at a time, the one that has just moved.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from chronik.raft.core import RaftNode
from chronik.raft.messages import AppendEntries, Entry, Message, NodeId, VoteResponse
from chronik.raft.state import Role


class InvariantViolated(AssertionError):  # noqa: N818 - a finding of the simulator
    """Something that never happens has happened."""


@dataclass(frozen=True, slots=True)
class Committed:
    """An entry as the first node to commit it saw it."""

    entry: Entry
    in_term: int
    """The term of that node at the time."""


@dataclass(slots=True)
class _Seen:
    """What was last seen of one node's log, so that unchanged logs are not read again."""

    last: tuple[int, int, int] = (0, 0, 0)
    committed: int = 0


@dataclass(slots=True)
class Judge:
    """The books."""

    leaders: dict[int, NodeId] = field(default_factory=dict)
    votes: dict[tuple[NodeId, int], NodeId] = field(default_factory=dict)
    entries: dict[tuple[int, int], tuple[Entry, int]] = field(default_factory=dict)
    """By (index, term): the entry and the term of the one before it."""
    committed: dict[int, Committed] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)
    acked: dict[bytes, int] = field(default_factory=dict)
    """Values that clients were told are stored, and their index."""
    acked_index_max: int = 0
    reads_checked: int = 0
    _seen: dict[NodeId, _Seen] = field(default_factory=dict)

    def restarted(self, node: NodeId) -> None:
        """A new process knows only what is on its disk."""
        self._seen[node] = _Seen()

    def check(self, node: RaftNode) -> None:
        """Everything about one node that has just moved."""
        seen = self._seen.setdefault(node.id, _Seen())
        log = node.state.log
        last = (log.base_index, log.last_index, log.last_term)
        if last != seen.last:
            seen.last = last
            self._check_log(node)
        led_before = node.role is Role.LEADER and self.leaders.get(node.term) == node.id
        if node.role is Role.LEADER and not led_before:
            self._check_new_leader(node)
        if log.committed != seen.committed:
            if led_before:
                self._check_counting(node)
            self._check_commit(node, seen)

    def _check_log(self, node: RaftNode) -> None:
        """Log matching: index and term name one entry and, by the one before, all before it."""
        log = node.state.log
        previous_term = log.base_term
        for entry in log.entries:
            known = self.entries.setdefault((entry.index, entry.term), (entry, previous_term))
            if known != (entry, previous_term):
                raise InvariantViolated(
                    f"log matching: {entry.term}/{entry.index} of node {node.id} is {entry} after "
                    f"term {previous_term}, elsewhere {known[0]} after term {known[1]}"
                )
            previous_term = entry.term

    def _check_new_leader(self, node: RaftNode) -> None:
        other = self.leaders.setdefault(node.term, node.id)
        if other != node.id:
            raise InvariantViolated(f"term {node.term} is led by {other} and by {node.id}")
        log = node.state.log
        for index, known in self.committed.items():
            is_earlier = known.in_term < node.term
            if is_earlier and index > log.base_index and not log.matches(index, known.entry.term):
                raise InvariantViolated(
                    f"leader completeness: {node.id} leads term {node.term} without "
                    f"{known.entry.term}/{index}, committed in term {known.in_term}"
                )

    def _check_counting(self, node: RaftNode) -> None:
        """5.4.2. Its consequence (figure 8) needs a rare order of crashes; the rule does not."""
        log = node.state.log
        if log.committed_term != node.term:
            raise InvariantViolated(
                f"{node.id} leads term {node.term} and commits {log.committed_term}/"
                f"{log.committed} by counting (5.4.2)"
            )

    def _check_commit(self, node: RaftNode, seen: _Seen) -> None:
        log = node.state.log
        if log.committed < seen.committed:
            raise InvariantViolated(
                f"commit index of {node.id} fell from {seen.committed} to {log.committed}"
            )
        first = max(seen.committed + 1, log.first_index)
        for entry in log.slice(first, log.committed):
            known = self.committed.setdefault(entry.index, Committed(entry, node.term))
            if known.entry != entry:
                raise InvariantViolated(
                    f"committed {known.entry.term}/{entry.index} was replaced by {entry} on "
                    f"{node.id}"
                )
        seen.committed = log.committed

    def sent(self, messages: Iterable[Message]) -> None:
        """Promises that leave a node."""
        for message in messages:
            if isinstance(message, VoteResponse) and message.granted and not message.pre_vote:
                self._voted(message.sender, message.term, message.to)
            elif isinstance(message, AppendEntries):
                leader = self.leaders.get(message.term)
                if leader != message.sender:
                    raise InvariantViolated(
                        f"{message.sender} sends entries in term {message.term} led by {leader}"
                    )

    def _voted(self, voter: NodeId, term: int, candidate: NodeId) -> None:
        other = self.votes.setdefault((voter, term), candidate)
        if other != candidate:
            raise InvariantViolated(f"{voter} voted for {other} and {candidate} in term {term}")

    def applied(self, node: NodeId, index: int, digest: bytes) -> None:
        """State machine safety: at equal index equal state."""
        if self.digests.setdefault(index, digest) != digest:
            raise InvariantViolated(f"state of {node} at {index} differs from the others'")

    def acknowledged(self, value: bytes, index: int) -> None:
        """A client was told that `value` is stored."""
        self.acked[value] = index
        self.acked_index_max = max(self.acked_index_max, index)

    def read(self, node: NodeId, floor: int, index: int) -> None:
        """A linearizable read sees all that was acknowledged or read before it began."""
        if index < floor:
            raise InvariantViolated(f"stale read on {node}: sees {index}, {floor} was visible")
        self.reads_checked += 1
        self.acked_index_max = max(self.acked_index_max, index)

    def check_nothing_lost(self) -> None:
        """Every acknowledged value is the committed entry of its index."""
        for value, index in self.acked.items():
            known = self.committed.get(index)
            if known is None or known.entry.data != value:
                raise InvariantViolated(f"acknowledged {value!r} at {index} is lost: {known}")
