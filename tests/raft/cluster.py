"""A Raft cluster in memory, moved by hand: every message waits until the test delivers it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from chronik.raft.config import RaftConfig
from chronik.raft.core import RaftNode, Ready
from chronik.raft.messages import (
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    NodeId,
    Snapshot,
    Stored,
)
from chronik.raft.state import ReadState, Role


class MemoryStore:
    """A disk that never fails and forgets nothing."""

    def __init__(self, conf_state: ConfState | None) -> None:
        self.hard_state = HardState()
        self.snapshot = Snapshot()
        self.entries: list[Entry] = []
        if conf_state is not None:
            self.hard_state = HardState(term=1, commit=1)
            self.snapshot = Snapshot(1, 1, conf_state)

    def load(self) -> Stored:
        return Stored(self.hard_state, self.snapshot.conf_state, self.snapshot, tuple(self.entries))

    def save(self, ready: Ready) -> None:
        if ready.snapshot is not None:
            self.snapshot, self.entries = ready.snapshot, []
        if ready.entries:
            first = ready.entries[0].index
            self.entries = [entry for entry in self.entries if entry.index < first]
            self.entries.extend(ready.entries)
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state

    def compact(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.entries = [entry for entry in self.entries if entry.index > snapshot.index]


class Member:
    """One node with its disk and what it has applied."""

    def __init__(self, config: RaftConfig, store: MemoryStore) -> None:
        self.config = config
        self.store = store
        self.restart()

    def restart(self) -> None:
        stored = self.store.load()
        self.node = RaftNode(self.config, stored, self.draw)
        self.applied: list[bytes] = []
        self.reads: list[ReadState] = []
        self.install(stored.snapshot)

    def draw(self, bound: int) -> int:
        # A number of its own for each node: elections neither collide nor depend on luck.
        return self.config.node_id % bound

    def install(self, snapshot: Snapshot) -> None:
        self.applied = snapshot.data.split(b",") if snapshot.data else []

    def process(self) -> Ready:
        """One turn of a driver: write, (send), apply, advance."""
        ready = self.node.ready()
        self.store.save(ready)
        if ready.snapshot is not None:
            self.install(ready.snapshot)
        for entry in ready.committed_entries:
            if entry.type is EntryType.NORMAL and entry.data:
                self.applied.append(entry.data)
        self.reads.extend(ready.read_states)
        self.node.advance(ready)
        return ready

    def take_snapshot(self, keep: int = 0) -> Snapshot:
        snapshot = self.node.take_snapshot(b",".join(self.applied))
        self.store.compact(snapshot)
        self.node.compact(snapshot, keep)
        return snapshot


class Cluster:
    """Members, and the messages between them."""

    def __init__(
        self, voters: Iterable[NodeId], learners: Iterable[NodeId] = (), **options: object
    ) -> None:
        self.options = options
        self.conf_state = ConfState(voters=tuple(voters), learners=tuple(learners))
        self.members: dict[NodeId, Member] = {}
        self.wire: list[Message] = []
        self.cut: set[tuple[NodeId, NodeId]] = set()
        for node in (*self.conf_state.voters, *self.conf_state.learners):
            self.add(node, self.conf_state)

    def add(self, node: NodeId, conf_state: ConfState | None = None) -> None:
        config = replace(RaftConfig(node_id=node), **self.options)  # type: ignore[arg-type]
        self.members[node] = Member(config, MemoryStore(conf_state))

    def __getitem__(self, node: NodeId) -> RaftNode:
        return self.members[node].node

    def isolate(self, *nodes: NodeId) -> None:
        """Cuts every way between these nodes and the others."""
        others = set(self.members) - set(nodes)
        self.cut |= {pair for node in nodes for other in others for pair in _both(node, other)}

    def heal(self) -> None:
        self.cut.clear()

    def process(self, node: NodeId) -> Ready:
        ready = self.members[node].process()
        self.wire.extend(ready.messages)
        return ready

    def deliver(self, wanted: Callable[[Message], bool] = lambda _: True) -> list[Message]:
        """Hands over what is on the wire now; what crosses a cut is lost."""
        chosen = [message for message in self.wire if wanted(message)]
        self.wire = [message for message in self.wire if not wanted(message)]
        return [message for message in chosen if self._hand_over(message)]

    def _hand_over(self, message: Message) -> bool:
        if (message.sender, message.to) in self.cut or message.to not in self.members:
            return False
        self[message.to].step(message)
        return True

    def settle(self) -> None:
        """Until nobody has anything to say."""
        for _ in self.turns():
            pass

    def turns(self) -> Iterator[tuple[NodeId, Ready] | Message]:
        """Everything that happens until the cluster is quiet, one event at a time."""
        for _ in range(1000):
            busy = [node for node in sorted(self.members) if self[node].has_ready()]
            for node in busy:
                yield node, self.process(node)
            delivered = self.deliver()
            yield from delivered
            if not busy and not delivered and not self.wire:
                return
        raise AssertionError("the cluster does not come to rest")

    def tick(self, ticks: int = 1, nodes: Iterable[NodeId] | None = None) -> None:
        """Lets time pass, and settles after every tick."""
        chosen = sorted(self.members) if nodes is None else list(nodes)
        for _ in range(ticks):
            for node in chosen:
                self[node].tick()
            self.settle()

    def elect(self, node: NodeId) -> None:
        self[node].campaign()
        self.settle()
        assert self[node].role is Role.LEADER

    def propose(self, node: NodeId, *values: bytes) -> None:
        for value in values:
            self[node].propose(value)
            self.settle()

    def terms(self, node: NodeId) -> list[int]:
        """The terms of the entries after the initial snapshot."""
        log = self[node].state.log
        return [entry.term for entry in log.entries]


def _both(one: NodeId, other: NodeId) -> tuple[tuple[NodeId, NodeId], tuple[NodeId, NodeId]]:
    return (one, other), (other, one)
