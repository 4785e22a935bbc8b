"""Known mistakes, planted from outside, to prove that the simulator finds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from chronik.raft.core import RaftNode
from chronik.raft.log import RaftLog
from chronik.raft.messages import Entry, HardState, Snapshot
from chronik.raft.state import ReadState, Role
from chronik.storage.raft_store import RaftStore


class _CommitsOlderTerms(RaftLog):
    """Figure 8: counts replicas of an entry of an older term."""

    __slots__ = ()

    @override
    def commit_counted(self, index: int, term: int) -> bool:
        return index <= self.last_index and self.commit_to(index)


class _KeepsConflicts(RaftLog):
    """5.3: takes only what is missing at the end, whatever stands before."""

    __slots__ = ()

    @override
    def merge(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.index == self.last_index + 1 and entry.term >= self.last_term:
                self.append((entry,))


class _CommitsOlderTermsNode(RaftNode):
    log_type = _CommitsOlderTerms


class _KeepsConflictsNode(RaftNode):
    log_type = _KeepsConflicts


class _ReadsAtOnceNode(RaftNode):
    """Thesis 6.4: a leader serves reads without asking whether it still leads."""

    @override
    def read_index(self, context: bytes) -> None:
        if self.role is Role.LEADER:
            self.state.read_states.append(ReadState(self.committed, context))
        else:
            super().read_index(context)


class _VoteNotSynced(RaftStore):
    """Figure 2: answers a request for a vote before the vote is on stable storage."""

    _skips_sync = False

    @override
    def save(
        self,
        hard_state: HardState | None,
        entries: Sequence[Entry],
        snapshot: Snapshot | None = None,
    ) -> None:
        self._skips_sync = not entries and snapshot is None
        super().save(hard_state, entries, snapshot)

    @override
    def _sync(self, file: int) -> None:
        if not self._skips_sync:
            super()._sync(file)


class _VoteInMemory(RaftStore):
    """Figure 2 again: writes term and vote only along with entries."""

    _in_memory: HardState | None = None

    @override
    def save(
        self,
        hard_state: HardState | None,
        entries: Sequence[Entry],
        snapshot: Snapshot | None = None,
    ) -> None:
        if hard_state is not None:
            self._in_memory = hard_state
        if entries or snapshot is not None:
            super().save(self._in_memory, entries, snapshot)


@dataclass(frozen=True, slots=True)
class Build:
    """What a simulated node is made of."""

    node_type: type[RaftNode] = RaftNode
    store_type: type[RaftStore] = RaftStore
    sends_before_save: bool = False


SOUND: Final = Build()
BUGS: Final[dict[str, Build]] = {
    "vote-not-synced": Build(store_type=_VoteNotSynced),
    "vote-in-memory": Build(store_type=_VoteInMemory),
    "commit-older-term": Build(node_type=_CommitsOlderTermsNode),
    "keep-conflicts": Build(node_type=_KeepsConflictsNode),
    "read-at-once": Build(node_type=_ReadsAtOnceNode),
    "ack-before-persist": Build(sends_before_save=True),
}


def build_with(bugs: Sequence[str]) -> Build:
    """One bug at a time; none gives the product as it is."""
    if len(bugs) > 1:
        raise ValueError("plant one bug at a time, else nobody knows which one was found")
    return BUGS[bugs[0]] if bugs else SOUND
