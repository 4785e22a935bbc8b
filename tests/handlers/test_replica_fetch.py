"""A follower's fetch at its leader: what is refused, where logs part, what it acknowledges."""

from types import SimpleNamespace
from typing import Any

import pytest
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
from chronik.wire.replica_fetch import Fetched, read_fetch_answer

VERSION, FOLLOWER, EPOCH = 17, 2, 1
ISR = (1, FOLLOWER)


class Leader:
    """What the handler needs of a node, around real partitions; `found` is the one there is."""

    def __init__(self, world: World) -> None:
        self.found: Partition | None = world.partitions[0]
        self.outbox = Outbox()
        self.session_id, self.epoch = 0, 0
        self._broker: Any = SimpleNamespace(
            clock=world.clock,
            loop=world.loop,
            tracer=OFF,
            outbox=self.outbox,
            metrics=world.metrics,
            isr=SimpleNamespace(follower_fetched=lambda _: None),
            partitions=SimpleNamespace(find=self._find, leader_of=lambda *_: -1),
            replica_sessions=ReplicaSessions(world.loop, lambda: 7),
            count=lambda *_: None,
        )

    def _find(self, *_: object) -> tuple[Partition | None, ErrorCode]:
        return self.found, ErrorCode.UNKNOWN_TOPIC_ID

    def fetch(
        self, partition: Partition, offset: int = 0, epoch: int = EPOCH, last_epoch: int = -1
    ) -> Fetched:
        """As the follower that has all up to there, the last of it from `last_epoch`."""
        topic_id, index = partition.topic_id, partition.index
        wanted = FetchPartition(None, topic_id, index, epoch, offset, last_epoch, 0, 1 << 20)
        request = FetchRequest(
            FOLLOWER, -1, 0, 1, 1 << 20, 0, self.session_id, self.epoch, [wanted], [], "", None
        )
        call = Call(bytearray(), Peer("", 0, "", 0), 0, lambda _: None, lambda: None)
        call.api_version, call.flexible_header = VERSION, True
        replica_fetch.answer(self._broker, call, request)
        assert call.answer is not None
        frame = b"".join(call.answer)
        answer = read_fetch_answer(VERSION, memoryview(frame)[9:])
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        (fetched,) = answer.partitions
        return fetched


def led(partition: Partition) -> Partition:
    partition.assign(PartitionState(ISR, ISR, leader=1, leader_epoch=EPOCH), 1, 0)
    return partition


async def filled(world: World) -> tuple[Leader, Partition]:
    """Three records of the one epoch."""
    partition = led(world.partitions[0])
    for number in range(3):
        world.produce(partition, number)
    await world.settle()
    return Leader(world), partition


@pytest.mark.parametrize(
    ("epoch", "offset", "code"),
    [
        (EPOCH, 1, ErrorCode.NONE),
        (EPOCH - 1, 1, ErrorCode.FENCED_LEADER_EPOCH),
        (EPOCH + 1, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (EPOCH, -5, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_fm50_what_is_of_another_epoch_or_gone_is_refused_and_acknowledges_nothing(
    epoch: int, offset: int, code: ErrorCode
) -> None:
    async def scenario() -> None:
        leader, partition = await filled(World(sync=False))
        fetched = leader.fetch(partition, offset, epoch, EPOCH)
        assert fetched.error_code == code
        assert bool(fetched.records) is (code is ErrorCode.NONE)
        assert partition.state.high_watermark == (1 if code is ErrorCode.NONE else 0)

    run(scenario)


def test_a_replica_that_leads_no_longer_refuses() -> None:
    async def scenario() -> None:
        leader, partition = await filled(World(sync=False))
        assert not leader.fetch(partition, 1, last_epoch=EPOCH).error_code
        partition.assign(PartitionState(ISR, ISR, leader=FOLLOWER, leader_epoch=EPOCH), 1, 0)
        fetched = leader.fetch(partition, 2, last_epoch=EPOCH)
        assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.state.high_watermark == 1

    run(scenario)


@pytest.mark.parametrize(("offset", "last_epoch"), [(4, EPOCH), (3, EPOCH - 1)])
def test_a_follower_whose_log_is_another_is_told_where_and_acknowledges_nothing(
    offset: int, last_epoch: int
) -> None:
    """It has more of the epoch than the leader, or what it has last is of an epoch before."""

    async def scenario() -> None:
        leader, partition = await filled(World(sync=False))
        fetched = leader.fetch(partition, offset, last_epoch=last_epoch)
        assert fetched.diverging_epoch.end_offset == (3 if last_epoch == EPOCH else 0)
        assert not fetched.records
        assert partition.state.high_watermark == 0

    run(scenario)


def test_what_a_fetch_acknowledges_is_answered_together() -> None:
    class Client:
        sent = 0

        def flush(self) -> None:
            self.sent += 1

    async def scenario() -> None:
        leader, partition = await filled(World(sync=False))
        client = Client()
        for end_offset in (1, 2, 3):
            partition.committed_waiters.add(end_offset, lambda _: leader.outbox.add(client))
        leader.fetch(partition, 3, last_epoch=EPOCH)
        assert client.sent == 1

    run(scenario)


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
