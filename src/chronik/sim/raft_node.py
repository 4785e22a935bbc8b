"""One simulated machine: the real core and the real store, driven as a broker would drive them."""

from collections.abc import Callable
from hashlib import blake2b
from random import Random

from chronik.raft.config import RaftConfig
from chronik.raft.core import RaftNode, Ready
from chronik.raft.messages import ConfState, Entry, EntryType, Message, NodeId, Snapshot
from chronik.raft.state import ReadState
from chronik.sim.disk import SimDisk
from chronik.sim.raft_bugs import Build
from chronik.sim.raft_invariants import InvariantViolated, Judge
from chronik.storage.raft_store import RaftStore

DIRECTORY = "/raft"
_DIGEST_BYTES = 8


class Machine:
    """A node that can lose its power and come back; `node` is None while it is off."""

    def __init__(
        self, config: RaftConfig, build: Build, segment_bytes: int, judge: Judge, random: Random
    ) -> None:
        self.id: NodeId = config.node_id
        self.config = config
        self.build = build
        self.segment_bytes = segment_bytes
        self.judge = judge
        self.random = random
        self.disk = SimDisk()
        self.store: RaftStore | None = None
        self.node: RaftNode | None = None
        self.life = 0
        """Counts the starts, so that events of an earlier life are recognised."""
        self.is_writing = False
        self.applied = 0
        self.digest = b""
        self.proposals: set[bytes] = set()
        """Values whose clients wait here."""
        self.reads: dict[bytes, int] = {}
        """Reads asked for here, and what must be visible to each."""
        self.readable: list[ReadState] = []

    def start(self, bootstrap: ConfState | None = None) -> None:
        """Power on."""
        assert self.node is None
        self.life += 1
        self.store = self.build.store_type.open(self.disk, DIRECTORY, self.segment_bytes)
        if bootstrap is not None and self.store.is_empty:
            self.store.bootstrap(bootstrap)
        stored = self.store.load()
        self._install(stored.snapshot)
        self.node = self.build.node_type(self.config, stored, self.random.randrange)
        self.judge.restarted(self.id)
        self.judge.check(self.node)

    def stop(self) -> None:
        """Power off: memory is gone, and whatever the disk had not synced."""
        self.node = self.store = None
        self.is_writing = False
        self.proposals.clear()
        self.reads.clear()
        self.readable.clear()
        self.disk.crash(self.random)

    @property
    def is_empty(self) -> bool:
        """True for a node that knows no cluster yet."""
        return self.node is not None and not self.node.conf_state.voters

    def begin(self) -> Ready | None:
        """Takes the next work, if the last one is done."""
        if self.node is None or self.is_writing or not self.node.has_ready():
            return None
        self.is_writing = True
        return self.node.ready()

    def finish(self, ready: Ready, send: Callable[[Message], None]) -> None:
        """Write, send, apply, advance. Raises PowerCutError in the middle of the write."""
        assert self.node is not None
        assert self.store is not None
        self.store.save(ready.hard_state, ready.entries, ready.snapshot)
        if not self.build.sends_before_save:
            self.send(ready, send)
        if ready.snapshot is not None:
            self._install(ready.snapshot)
        for entry in ready.committed_entries:
            self._apply(entry)
        self.node.advance(ready)
        self.is_writing = False
        self.readable.extend(ready.read_states)
        self._serve_reads()

    def send(self, ready: Ready, send: Callable[[Message], None]) -> None:
        """Lets the promises go."""
        self.judge.sent(ready.messages)
        for message in ready.messages:
            send(message)

    def _apply(self, entry: Entry) -> None:
        if entry.index != self.applied + 1:
            raise InvariantViolated(f"{self.id} applies {entry.index} after {self.applied}")
        self.applied = entry.index
        state = b"%s%d %d %s" % (self.digest, entry.index, entry.type, entry.data)
        self.digest = blake2b(state, digest_size=_DIGEST_BYTES).digest()
        self.judge.applied(self.id, self.applied, self.digest)
        if entry.type is EntryType.NORMAL and entry.data in self.proposals:
            self.proposals.discard(entry.data)
            self.judge.acknowledged(entry.data, entry.index)

    def _install(self, snapshot: Snapshot) -> None:
        if self.node is not None and snapshot.index <= self.applied:
            raise InvariantViolated(f"{self.id} goes back from {self.applied} to {snapshot.index}")
        self.applied = snapshot.index
        self.digest = snapshot.data
        if snapshot.index:
            self.judge.applied(self.id, self.applied, self.digest)

    def _serve_reads(self) -> None:
        waiting = []
        for read in self.readable:
            if read.index > self.applied:
                waiting.append(read)
            elif read.context in self.reads:
                self.judge.read(self.id, self.reads.pop(read.context), self.applied)
        self.readable = waiting

    def take_snapshot(self, keep: int) -> None:
        """Compacts the log, if there is anything new to cover and no write is under way."""
        node, store = self.node, self.store
        if node is None or store is None or self.is_writing:
            return
        if node.applied <= node.snapshot_index or node.state.log.pending_snapshot is not None:
            return
        snapshot = node.take_snapshot(self.digest)
        store.compact(snapshot)
        node.compact(snapshot, keep)
