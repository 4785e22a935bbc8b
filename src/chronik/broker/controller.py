"""The metadata log: commands are decided, written through Raft, then applied and published.

The Raft leader decides, one command at a time: what is decided on an image is committed to that
image. Every other node hands its commands to the leader and waits until its own image has what came
of them. An image is never changed in place; whoever keeps an old one has a consistent, older truth.
"""

import asyncio
import contextlib
import logging
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from chronik.broker.disk import Disk
from chronik.broker.peering import Message, PeerApi, Peers, PeerUnavailableError
from chronik.broker.pending import NotLeaderError, Pending
from chronik.broker.raft_writer import RaftWriter
from chronik.broker.sessions import Sessions
from chronik.cluster.apply import apply, restore, snapshot
from chronik.cluster.command_codec import decode_value, encode_value
from chronik.cluster.commands import BrokerHeartbeat, Command, ControllerSettings
from chronik.cluster.decide import decide
from chronik.cluster.image import EMPTY, ClusterImage
from chronik.cluster.records import decode_all, encode_all
from chronik.raft.codec import decode_message, encode_message
from chronik.raft.core import RaftNode, Ready
from chronik.raft.messages import ConfChange, ConfState, EntryType, Position, VoteResponse
from chronik.raft.state import ProposalDropped, Role
from chronik.storage.raft_store import BOOTSTRAP_INDEX, RaftStore

R = TypeVar("R")
Subscriber = Callable[[ClusterImage, ClusterImage], None]
"""Called with the image before and after, on the event loop, in the order of subscription."""

SNAPSHOT_EVERY_ENTRIES = 10_000
TICK_S = 0.05
COMMAND_TIMEOUT_S = 10.0
CONFIRM_TIMEOUT_S = 1.0
RETRY_S = 0.05
_HELLO = struct.Struct(">iq")
_NOT_LEADER = b"\x00"
_DONE = b"\x01"
_UNKNOWN = b"\x02"
"""The leader cannot tell what becomes of the command."""

log = logging.getLogger(__name__)


class ControllerUnavailableError(Exception):
    """No controller answered in time. `unknown`: the command may have been carried out."""

    def __init__(self, message: str, *, unknown: bool) -> None:
        super().__init__(message)
        self.unknown = unknown


class Quorum(NamedTuple):
    """The metadata log's members, for people."""

    voters: tuple[int, ...]
    learners: tuple[int, ...]
    ends: dict[int, int]
    committed: int


class Controller:
    """Owns the image. On one node it is the only voter of its own Raft group."""

    def __init__(
        self,
        disk: Disk,
        store: RaftStore,
        raft: RaftNode,
        settings: ControllerSettings,
        peers: Peers,
    ) -> None:
        self.image: ClusterImage = EMPTY
        self.sessions = Sessions()
        self._store = store
        self._writer = RaftWriter(disk, store)
        self._raft = raft
        self._settings = settings
        self._peers = peers
        self._subscribers: list[Subscriber] = []
        self._deciding = asyncio.Lock()
        self._work = asyncio.Event()
        self._applied_term = 0
        self._led_term = -1
        self._leader_heard: tuple[int, float] | None = None
        """The node that led last, and when a message of it came last."""
        self.is_returning = False
        """True for a voter that lost its disk, until it has caught up: see `first_start`."""
        self._loop = asyncio.get_running_loop()
        self._pending = Pending(self._loop)

    @property
    def node_id(self) -> int:
        """This node's number."""
        return self._raft.id

    @property
    def leader_id(self) -> int:
        """The node that decides; -1 where there is none."""
        leader = self._raft.leader
        return -1 if leader is None else leader

    @property
    def leads(self) -> bool:
        """True where this node decides, and has applied all that was decided before it."""
        return self._raft.role is Role.LEADER and self._applied_term == self._raft.term

    @property
    def term(self) -> int:
        """Raft's term, for people."""
        return self._raft.term

    def quorum(self) -> Quorum:
        """Who votes, and how far everybody's log is as this node knows it."""
        conf = self._raft.conf_state
        ends = {node: one.match for node, one in self._raft.state.progress.items()}
        ends[self._raft.id] = self._raft.last_index
        voters = tuple(sorted({*conf.voters, *conf.voters_outgoing}))
        return Quorum(voters, conf.learners, ends, self._raft.committed)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Every change of the image from now on; read `image` for what was before."""
        self._subscribers.append(subscriber)

    def watch_leader(self, watcher: Callable[[int, int], None]) -> None:
        """Has the watcher called with leader and term whenever one of them changes."""
        self._pending.watch_leader(watcher)

    async def start(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Reads the log back and takes part; a single voter leads when this returns."""
        stored = self._store.load()
        if stored.snapshot.data:
            self.image = restore(decode_all(stored.snapshot.data), stored.snapshot.index)
        if stored.conf_state.voters == (self._raft.id,):
            self._raft.campaign()
        await self._pump()
        return [tasks.create_task(self._run()), tasks.create_task(self._tick())]

    def campaign(self) -> None:
        """Begins an election now instead of after an election timeout."""
        self._raft.campaign()
        self._work.set()

    def bootstrap(self, voters: tuple[int, ...]) -> None:
        """A new cluster: each of its voters begins with the same members."""
        self._store.bootstrap(ConfState(voters=voters))
        state = self._raft.state
        self._raft = RaftNode(state.config, self._store.load(), state.draw)

    def hello(self) -> bytes:
        """Who this is, and how much of the log it has."""
        return _HELLO.pack(self._raft.id, self._raft.last_index)

    def serve_hello(self, data: memoryview) -> bytes:
        """Whether anything was ever decided, as far as this node knows, and whether it may vote."""
        node_id, last_index = _HELLO.unpack(data)
        self._raft.report_lost(node_id, last_index)
        self._peers.heard_of(node_id)
        own = self._raft.last_index
        return bytes([self.is_returning or own > BOOTSTRAP_INDEX, own >= BOOTSTRAP_INDEX])

    # -- commands

    async def submit(self, command: Command[R], timeout_s: float = COMMAND_TIMEOUT_S) -> R:
        """The answer, once the records of the command are durable and in this node's image.

        An attempt of unknown fate is repeated: commands that were carried out already find so.
        """
        deadline = self._loop.time() + timeout_s
        unknown = False
        while True:
            try:
                if self._raft.role is Role.LEADER:
                    # A sign of life counts when it comes, however long the queue to the log is.
                    self.sessions.heard(command, self._loop.time())
                    return await self._decide(command, deadline)
                return await self._forward(command, deadline)
            except (NotLeaderError, PeerUnavailableError) as error:
                unknown = unknown or error.sent
            if self._loop.time() + RETRY_S > deadline:
                raise ControllerUnavailableError(
                    "no node of the cluster decides at the moment: is a majority running?",
                    unknown=unknown,
                )
            await asyncio.sleep(RETRY_S)

    async def _decide(self, command: Command[R], deadline: float) -> R:
        async with self._deciding:
            if not self.leads or self._raft.applied < self._raft.last_index:
                raise NotLeaderError  # or a command before this one has an open fate
            decision = decide(self.image, command, self._settings)
            if decision.records:
                await self._commit(encode_all(decision.records), deadline)
            elif not isinstance(command, BrokerHeartbeat):
                await self._confirm(deadline)
            return decision.result

    async def _confirm(self, deadline: float) -> None:
        """Makes sure that this node still leads: an answer that changes nothing must be true too.

        A leader that was paused may have a successor it has not heard of (thesis, 6.4).
        """
        with self._pending.confirmation() as (context, confirmed):
            self._raft.read_index(context)
            self._work.set()
            try:
                async with asyncio.timeout_at(min(deadline, self._loop.time() + CONFIRM_TIMEOUT_S)):
                    await confirmed
            except TimeoutError as error:
                raise NotLeaderError from error

    async def _commit(self, data: bytes, deadline: float) -> None:
        try:
            position = self._raft.propose(data)
        except ProposalDropped as error:
            raise NotLeaderError from error
        await self._committed(position, deadline)

    async def change_members(self, change: ConfChange, timeout_s: float) -> None:
        """Other members of the metadata log; ProposalDropped where the change cannot be made."""
        async with self._deciding:
            if not self.leads or self._raft.applied < self._raft.last_index:
                raise ControllerUnavailableError("this node does not decide now", unknown=False)
            position = self._raft.propose_conf_change(change)
            try:
                await self._committed(position, self._loop.time() + timeout_s)
            except NotLeaderError as error:
                raise ControllerUnavailableError("another node leads now", unknown=True) from error

    async def _committed(self, position: Position | None, deadline: float) -> None:
        assert position is not None, "only the leader proposes"
        self._work.set()
        try:
            with self._pending.proposal(position) as committed:
                async with asyncio.timeout_at(deadline):
                    if not await committed:
                        raise NotLeaderError(sent=True)
        except TimeoutError as error:
            raise ControllerUnavailableError(
                "the command was not confirmed by a majority in time", unknown=True
            ) from error

    async def _forward(self, command: Command[R], deadline: float) -> R:
        leader = self._raft.leader
        if leader is None:
            raise NotLeaderError
        left_s = max(RETRY_S, deadline - self._loop.time())
        answer = await self._ask(leader, encode_value(command), left_s)
        if answer[:1] == _NOT_LEADER:
            raise NotLeaderError
        if answer[:1] == _UNKNOWN:
            raise PeerUnavailableError("no majority confirmed the command in time", sent=True)
        version, result = decode_value(answer[1:])
        await self._image_at(version, deadline)
        return result  # type: ignore[no-any-return]

    async def _ask(self, leader: int, command: bytes, timeout_s: float) -> memoryview:
        """Gives up when another node leads: the one that was asked may hang."""
        try:
            async with asyncio.timeout(None) as patience:
                with self._pending.on_leader_change(lambda: patience.reschedule(0)):
                    return await self._peers.call(
                        leader, PeerApi.CONTROLLER_COMMAND, 0, [command], timeout_s
                    )
        except TimeoutError as error:
            raise PeerUnavailableError(f"node {leader} leads no longer", sent=True) from error

    async def _image_at(self, version: int, deadline: float) -> None:
        """Waits until this node has seen what the leader had when it answered."""
        if self.image.version >= version:
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._pending.image(version)
        except TimeoutError as error:
            raise ControllerUnavailableError(
                "this node lags behind the metadata log", unknown=True
            ) from error

    # -- what other nodes ask

    async def serve_command(self, data: memoryview) -> bytes:
        """Decides a command for another node; it asks elsewhere if this one does not lead."""
        command: Command[Any] = decode_value(data)
        now_s = self._loop.time()
        self.sessions.heard(command, now_s)
        try:
            result = await self._decide(command, now_s + COMMAND_TIMEOUT_S)
        except NotLeaderError:
            return _NOT_LEADER
        except ControllerUnavailableError:
            return _UNKNOWN
        return _DONE + encode_value((self.image.version, result))

    def serve_message(self, data: memoryview) -> None:
        """Takes a Raft message."""
        message = decode_message(data)
        self._raft.step(message)
        if message.sender == self._raft.leader:
            self._leader_heard = (message.sender, self._loop.time())
        self._work.set()

    async def hand_over(self, timeout_s: float, target: int | None = None) -> None:
        """Another node decides from now on, so that nobody waits for an election timeout."""
        if (target := self._raft.best_successor() if target is None else target) is None:
            return
        changed = asyncio.Event()
        with self._pending.on_leader_change(changed.set), contextlib.suppress(TimeoutError):
            self._raft.transfer_leadership(target)
            self._work.set()
            async with asyncio.timeout(timeout_s):
                await changed.wait()

    # -- driving Raft

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if not self.is_returning:  # else it would campaign
                self._raft.tick()
            if self._raft.has_ready():
                self._work.set()

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            await self._pump()

    async def _pump(self) -> None:
        raft = self._raft
        while raft.has_ready():
            ready = raft.ready()
            if ready.hard_state is not None or ready.entries or ready.snapshot is not None:
                await self._writer.save(ready)
            for message in ready.messages:
                if self.is_returning and isinstance(message, VoteResponse) and message.granted:
                    continue
                self._peers.post(Message(message.to, PeerApi.RAFT, encode_message(message)))
            self._apply(ready)
            raft.advance(ready)
            if ready.soft_state is not None:
                self._role_changed()
        if raft.applied - raft.snapshot_index > SNAPSHOT_EVERY_ENTRIES:
            taken = raft.take_snapshot(encode_all(snapshot(self.image)))
            await self._writer.compact(taken)
            raft.compact(taken)

    async def saved(self) -> None:
        """Waits for a write that is with the disk; the store may be closed after that."""
        await self._writer.settled()

    def _role_changed(self) -> None:
        self._pending.leader_changed(self.leader_id, self._raft.term)
        if self._raft.role is Role.LEADER:
            self.sessions.restart(self.image.brokers, self._loop.time())
            if self._leader_heard is not None:
                # Its silence is why there was an election: it began before this one's end.
                self.sessions.heard_at(*self._leader_heard)
            if self._led_term != self._raft.term:  # it is told twice where its own vote elects it
                self._led_term = self._raft.term
                log.info("leads the metadata log in term %d", self._led_term)

    def _apply(self, ready: Ready) -> None:
        old = self.image
        if ready.snapshot is not None and ready.snapshot.data:
            self.image = restore(decode_all(ready.snapshot.data), ready.snapshot.index)
        for entry in ready.committed_entries:
            self._applied_term = entry.term
            if entry.type is EntryType.NORMAL and entry.data:
                self.image = apply(self.image, decode_all(entry.data), entry.index)
        if self.image is not old:
            for subscriber in self._subscribers:
                subscriber(old, self.image)
            self._pending.image_is(self.image.version)
        for entry in ready.committed_entries:
            self._pending.applied(entry)
        for read in ready.read_states:
            self._pending.confirmed(read.context)
