"""The controller among real Raft cores, and what a partition says to clients with an old epoch."""

import asyncio
import random

import pytest
from tests.broker.kit import World, run
from tests.broker.peers_kit import NoPeers

from chronik.broker.controller import Controller, ControllerUnavailableError
from chronik.broker.disk import Disk
from chronik.broker.partition import OffsetError
from chronik.broker.peering import Message
from chronik.cluster.commands import ControllerSettings, CreateCluster, DeleteTopics, TopicRef
from chronik.model.errors import ErrorCode
from chronik.raft.codec import decode_message, encode_message
from chronik.raft.config import RaftConfig
from chronik.raft.core import RaftNode
from chronik.raft.messages import ConfState
from chronik.sim.disk import SimDisk
from chronik.storage.raft_store import RaftStore

VOTERS = (1, 2, 3)


def stored(node_id: int) -> tuple[RaftStore, RaftNode]:
    store = RaftStore.open(SimDisk(), "/raft")
    store.bootstrap(ConfState(voters=VOTERS))
    config = RaftConfig(node_id=node_id, forward_proposals=False)
    return store, RaftNode(config, store.load(), random.Random(node_id).randrange)


class Others(NoPeers):
    """Nodes 2 and 3, which answer at once until they are cut off."""

    def __init__(self) -> None:
        self.cut = False
        self.controller: Controller | None = None
        self._nodes = {node_id: stored(node_id)[1] for node_id in VOTERS[1:]}

    def post(self, message: Message) -> None:
        if self.cut:
            return
        node = self._nodes[message.node_id]
        node.step(decode_message(message.data))
        while node.has_ready():
            ready = node.ready()
            node.advance(ready)
            for answer in ready.messages:
                if answer.to == VOTERS[0] and self.controller is not None:
                    data = memoryview(encode_message(answer))
                    asyncio.get_running_loop().call_soon(self.controller.serve_message, data)


def test_a_leader_that_was_cut_off_answers_nothing_from_its_old_image() -> None:
    """Also what changes nothing is decided by a majority: there may be a successor."""

    async def scenario() -> None:
        others = Others()
        store, raft = stored(VOTERS[0])
        disk = Disk(asyncio.get_running_loop(), 1)
        controller = Controller(disk, store, raft, ControllerSettings(), others)
        others.controller = controller
        async with asyncio.TaskGroup() as tasks:
            running = await controller.start(tasks)
            await controller.submit(CreateCluster("c"))
            missing = DeleteTopics((TopicRef("missing"),))
            (answer,) = await controller.submit(missing)
            assert answer.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            others.cut = True
            with pytest.raises(ControllerUnavailableError):
                await controller.submit(missing, timeout_s=0.5)
            for task in running:
                task.cancel()
        await controller.saved()
        disk.close()

    asyncio.run(scenario())


def test_fm50_a_client_with_another_leader_epoch_is_fenced() -> None:
    async def scenario() -> None:
        partition = World().partitions[0]
        partition.state.leader_epoch = 5
        partition.check_epoch(-1)
        partition.check_epoch(5)
        for epoch, code in (
            (4, ErrorCode.FENCED_LEADER_EPOCH),
            (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            with pytest.raises(OffsetError) as caught:
                partition.check_epoch(epoch)
            assert caught.value.code is code

    run(scenario)
