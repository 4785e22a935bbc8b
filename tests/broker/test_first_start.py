"""Voters of a cluster that has never decided anything find each other, and the last one begins."""

import asyncio
import random

import pytest

from chronik.broker.controller import Controller
from chronik.broker.disk import Disk
from chronik.broker.first_start import MARKER, FirstStart
from chronik.broker.peering import Answered, Message, PeerUnavailableError
from chronik.cluster.commands import ControllerSettings
from chronik.raft.codec import decode_message
from chronik.raft.config import RaftConfig
from chronik.raft.core import RaftNode
from chronik.raft.messages import RequestVote
from chronik.sim.disk import SimDisk
from chronik.storage.raft_store import RaftStore
from chronik.wire.records import Buffer

VOTERS = (1, 2, 3)
DIRECTORY = "/data"


class Voter:
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

    async def decide(self) -> bool:
        """It is there from now on: others reach it."""
        self.cluster[self.controller.node_id] = self
        async with asyncio.timeout(5):
            return await self.first.decide(is_empty=True)

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

    def request(
        self,
        node_id: int,
        api_key: int,
        version: int,
        body: list[Buffer],
        timeout_s: float,
        answered: Answered,
    ) -> None:
        answered(PeerUnavailableError("nothing is asked here", sent=False))

    def set_address(self, node_id: int, host: str, port: int) -> None:
        """Addresses do not matter here."""

    def refuses(self, node_id: int) -> bool:
        return False


class Ancestor(Voter):
    """A node of an older version: it says only whether anything was decided."""

    def serve(self, hello: memoryview) -> memoryview:
        return super().serve(hello)[:1]


async def in_turn(*kinds: type[Voter]) -> list[tuple[Voter, bool]]:
    """Voters that come one after the other, with what each was told: does it begin?"""
    disk = Disk(asyncio.get_running_loop(), 1)
    cluster: dict[int, Voter] = {}
    came = [kind(node_id, cluster, disk) for node_id, kind in zip(VOTERS, kinds, strict=False)]
    # The first waits for a majority: it is asked, and asks, while the second comes.
    told = await asyncio.gather(*(one.decide() for one in came[:2]))
    told += [await one.decide() for one in came[2:]]
    disk.close()
    return list(zip(came, told, strict=True))


def test_the_last_voter_to_come_begins_the_first_election() -> None:
    told = asyncio.run(in_turn(Voter, Voter, Voter))
    assert [begins for _, begins in told] == [False, False, True]
    assert all(one.store.load().conf_state.voters == VOTERS for one, _ in told)


def test_who_asks_is_heard_of_by_those_it_asks() -> None:
    (first, _), (second, _), (last, _) = asyncio.run(in_turn(Voter, Voter, Voter))
    assert {2, 3} <= set(first.heard)
    assert {1, 3} <= set(second.heard)
    assert not last.heard


def test_a_majority_is_enough_for_members_but_not_for_an_election_at_once() -> None:
    """The one that is missing would find a cluster that has decided something, and think its own
    disk was lost."""
    told = asyncio.run(in_turn(Voter, Voter))
    assert [begins for _, begins in told] == [False, False]


def test_a_voter_that_does_not_say_that_it_may_vote_is_not_relied_on() -> None:
    told = asyncio.run(in_turn(Voter, Ancestor, Voter))
    assert not any(begins for _, begins in told)


def test_a_voter_with_an_empty_disk_in_an_old_cluster_does_not_begin() -> None:
    async def scenario() -> None:
        disk = Disk(asyncio.get_running_loop(), 1)
        cluster: dict[int, Voter] = {}
        old, wiped = Voter(1, cluster, disk), Voter(2, cluster, disk)
        old.controller.is_returning = True  # so it knows that there were decisions
        cluster[1] = old
        assert not await wiped.decide()
        assert wiped.controller.is_returning
        assert MARKER in wiped.fs.listdir(DIRECTORY)
        disk.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("begins", [True, False])
def test_who_begins_asks_for_votes_before_any_time_has_passed(begins: bool) -> None:
    async def scenario() -> None:
        disk = Disk(asyncio.get_running_loop(), 1)
        one = Voter(1, {}, disk)
        one.controller.bootstrap(VOTERS)
        async with asyncio.TaskGroup() as tasks:
            running = await one.controller.start(tasks, campaign=begins)
            for task in running:
                task.cancel()  # neither of them has had its turn yet
        asked = [decode_message(memoryview(message.data)) for message in one.posted]
        assert [type(message) for message in asked] == [RequestVote] * (2 * begins)
        assert {message.to for message in asked} == ({2, 3} if begins else set())
        await one.controller.saved()
        disk.close()

    asyncio.run(scenario())
