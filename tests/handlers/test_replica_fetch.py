"""A follower's fetch at its leader: what it gets when the leader's replica is another one now."""

from types import SimpleNamespace
from typing import Any

from tests.broker.kit import World, run

from chronik.broker.outbox import Outbox
from chronik.broker.partition import Partition
from chronik.broker.replica_sessions import ReplicaSessions
from chronik.cluster.image import PartitionState
from chronik.handlers import replica_fetch
from chronik.handlers.call import Call, Peer
from chronik.model.errors import ErrorCode
from chronik.trace.tracer import OFF
from chronik.wire.fetch import FetchPartition, FetchRequest
from chronik.wire.pieces import buffers_of
from chronik.wire.replica_fetch import Fetched, read_fetch_answer

VERSION, FOLLOWER, EPOCH = 17, 2, 1
ISR = (1, FOLLOWER)


class Leader:
    """What the handler needs of a node, around real partitions; `found` is the one there is."""

    def __init__(self, world: World) -> None:
        self.found: Partition | None = world.partitions[0]
        self.session_id, self.epoch = 0, 0
        self._broker: Any = SimpleNamespace(
            clock=world.clock,
            loop=world.loop,
            tracer=OFF,
            outbox=Outbox(),
            metrics=world.metrics,
            isr=SimpleNamespace(follower_fetched=lambda _: None),
            partitions=SimpleNamespace(find=self._find, leader_of=lambda *_: -1),
            replica_sessions=ReplicaSessions(world.loop, lambda: 7),
            count=lambda *_: None,
        )

    def _find(self, *_: object) -> tuple[Partition | None, ErrorCode]:
        return self.found, ErrorCode.UNKNOWN_TOPIC_ID

    def fetch(self, partition: Partition) -> Fetched:
        """From the beginning."""
        wanted = FetchPartition(
            None,
            partition.topic_id,
            partition.index,
            EPOCH,
            0,
            -1,
            0,
            1 << 20,
        )
        request = FetchRequest(
            FOLLOWER, -1, 0, 1, 1 << 20, 0, self.session_id, self.epoch, [wanted], [], "", None
        )
        call = Call(bytearray(), Peer("", 0, "", 0), 0, lambda _: None, lambda: None)
        call.api_version, call.flexible_header = VERSION, True
        replica_fetch.answer(self._broker, call, request)
        assert call.answer is not None
        frame = b"".join(buffers_of(call.answer))
        answer = read_fetch_answer(VERSION, memoryview(frame)[9:])
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        (fetched,) = answer.partitions
        return fetched


def led(partition: Partition) -> Partition:
    partition.assign(PartitionState(ISR, ISR, leader=1, leader_epoch=EPOCH), 1, 0)
    return partition


def test_a_replica_that_was_closed_is_not_served_from_any_more() -> None:
    async def scenario() -> None:
        world = World(2, sync=False)
        first, second = (led(one) for one in world.partitions)
        world.produce(first, 1)
        world.produce(second, 2, values=3)
        await world.settle()
        leader = Leader(world)
        assert b"1/0" in bytes(leader.fetch(first).records)

        first.leader_id = -1  # as whoever closes it does
        first.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        leader.found = second
        assert b"2/2" in bytes(leader.fetch(first).records)

        second.leader_id = -1
        second.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leader.found = None
        refused = leader.fetch(first)
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert not refused.records

    run(scenario)
