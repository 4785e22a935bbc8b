"""Voters of a cluster that has never decided anything find each other, and one of them begins."""

import asyncio
import random
from typing import Any

import pytest
from tests.broker.peers_kit import NoPeers

from chronik.broker import controller
from chronik.broker.controller import Controller
from chronik.broker.disk import Disk
from chronik.broker.first_start import MARKER, FirstStart
from chronik.broker.peering import Message, PeerUnavailableError
from chronik.cluster.commands import ControllerSettings
from chronik.raft.codec import decode_message, encode_message
from chronik.raft.config import RaftConfig
from chronik.raft.core import RaftNode
from chronik.raft.messages import Heartbeat, RequestVote
from chronik.sim.disk import SimDisk
from chronik.storage.raft_store import RaftStore
from chronik.wire.records import Buffer

VOTERS = (1, 2, 3)
DIRECTORY = "/data"
PATIENCE_S = 0.2
"""For a voter that waits for one that never comes."""


class Voter(NoPeers):
    """One node, as far as a first start is concerned; it is its own links to the others."""

    def __init__(self, node_id: int, cluster: "dict[int, Voter]", disk: Disk) -> None:
        self.cluster = cluster
        self.heard: list[int] = []
        self.posted: list[Message] = []
        self.fs = SimDisk()
        self.fs.mkdir(DIRECTORY)
        self.store = RaftStore.open(self.fs, "/raft")
        config = RaftConfig(node_id=node_id, forward_proposals=False)
        raft = RaftNode(config, self.store.load(), random.Random(node_id).randrange)
        self.controller = Controller(disk, self.store, raft, ControllerSettings(), self)
        self.first = FirstStart(self.fs, DIRECTORY, self.controller, self, VOTERS)

    async def decide(self) -> None:
        """It is there from now on: others reach it."""
        self.cluster[self.controller.node_id] = self
        async with asyncio.timeout(5):
            await self.first.decide(is_empty=True)

    async def call(
        self, node_id: int, api_key: int, version: int, body: list[Buffer], timeout_s: float
    ) -> memoryview:
        if node_id not in self.cluster:
            raise PeerUnavailableError("it is not there", sent=False)
        (hello,) = body
        return self.cluster[node_id].serve(memoryview(hello))

    def serve(self, hello: memoryview) -> memoryview:
        return memoryview(self.controller.serve_hello(hello))

    def heard_of(self, node_id: int) -> None:
        self.heard.append(node_id)

    def post(self, message: Message) -> None:
        self.posted.append(message)


class Ancestor(Voter):
    """A node of an older version: it says only whether anything was decided."""

    def serve(self, hello: memoryview) -> memoryview:
        return super().serve(hello)[:1]


@pytest.fixture(autouse=True)
def _no_election_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "TICK_S", 3600.0)


async def together(*kinds: type[Voter]) -> list[Voter]:
    """Voters that come at the same time, each with its part of the first election."""
    disk = Disk(asyncio.get_running_loop(), 1)
    cluster: dict[int, Voter] = {}
    came = [kind(node_id, cluster, disk) for node_id, kind in zip(VOTERS, kinds, strict=False)]
    await asyncio.gather(*(one.decide() for one in came))
    async with asyncio.TaskGroup() as tasks:
        running = [task for one in came for task in await one.controller.start(tasks)]
        electing = [tasks.create_task(one.first.elect()) for one in came]
        await asyncio.wait(electing, timeout=PATIENCE_S)
        while electing[0].done() and not came[0].posted:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        for task in (*running, *electing):
            task.cancel()
    disk.close()
    return came


def asked_for_votes(voter: Voter) -> set[int]:
    """Of whom; by the one that begins an election."""
    messages = [decode_message(memoryview(message.data)) for message in voter.posted]
    assert all(isinstance(message, RequestVote) for message in messages)
    return {message.to for message in messages}


def test_the_first_voter_begins_when_all_are_there() -> None:
    came = asyncio.run(together(Voter, Voter, Voter))
    assert [asked_for_votes(one) for one in came] == [{2, 3}, set(), set()]
    assert all(one.store.load().conf_state.voters == VOTERS for one in came)


def test_nobody_begins_where_a_leader_was_found_while_the_others_were_asked() -> None:
    class Told(Voter):
        """Hears of a leader from the one it asks."""

        async def call(self, *asked: Any) -> memoryview:
            answer = await super().call(*asked)
            if self.store.load().conf_state.voters:  # it has decided, and would begin now
                beat = Heartbeat(sender=2, to=1, term=2, commit=0)
                self.controller.serve_message(memoryview(encode_message(beat)))
            return answer

    (first, *_) = asyncio.run(together(Told, Voter, Voter))
    assert first.controller.leader_id == 2
    messages = [decode_message(memoryview(message.data)) for message in first.posted]
    assert not any(isinstance(message, RequestVote) for message in messages)


def test_who_asks_is_heard_of_by_those_it_asks() -> None:
    first, second, third = asyncio.run(together(Voter, Voter, Voter))
    assert 1 in set(second.heard) & set(third.heard)
    assert first.heard


def test_a_majority_is_enough_for_members_but_not_for_an_election_at_once() -> None:
    came = asyncio.run(together(Voter, Voter))
    assert all(one.store.load().conf_state.voters == VOTERS for one in came)
    assert not any(one.posted for one in came)


def test_a_voter_may_vote_once_it_knows_the_members() -> None:
    async def scenario() -> None:
        disk = Disk(asyncio.get_running_loop(), 1)
        one, other = Voter(1, {}, disk), Voter(2, {}, disk)
        hello = memoryview(other.controller.hello())
        assert bytes(one.serve(hello)) == bytes([False, False])
        one.controller.bootstrap(VOTERS)
        assert bytes(one.serve(hello)) == bytes([False, True])
        disk.close()

    asyncio.run(scenario())


def test_a_voter_that_does_not_say_that_it_may_vote_is_not_relied_on() -> None:
    came = asyncio.run(together(Voter, Ancestor, Voter))
    assert not any(one.posted for one in came)


def test_a_voter_with_an_empty_disk_in_an_old_cluster_does_not_begin() -> None:
    async def scenario() -> None:
        disk = Disk(asyncio.get_running_loop(), 1)
        cluster: dict[int, Voter] = {}
        wiped, old = Voter(1, cluster, disk), Voter(2, cluster, disk)
        old.controller.is_returning = True  # so it knows that there were decisions
        cluster[2] = old
        await wiped.decide()
        assert wiped.controller.is_returning
        assert MARKER in wiped.fs.listdir(DIRECTORY)
        async with asyncio.timeout(5):
            await wiped.first.elect()
        assert not wiped.posted
        disk.close()

    asyncio.run(scenario())
