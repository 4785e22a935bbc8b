"""A produce request's memory is free once its batches are written, its answer or not."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.broker.kit import World, run, turn
from tests.clients.batches import Batch

from chronik.cluster.image import PartitionState
from chronik.handlers import produce
from chronik.handlers.call import Call, Peer
from chronik.model.errors import ErrorCode
from chronik.trace.tracer import OFF
from chronik.wire.codec import encode
from chronik.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

VERSION = 12
ISR = (1, 2)


def broker_of(world: World) -> Any:
    """What the handler needs of a node, around a real partition."""
    (partition,) = world.partitions
    return SimpleNamespace(
        recompression=SimpleNamespace(concerns=lambda *_: False),
        partitions=SimpleNamespace(find=lambda *_: (partition, ErrorCode.NONE)),
        tracer=OFF,
        commit=world.commit,
        clock=world.clock,
        loop=world.loop,
        count=lambda *_: None,
    )


def request(acks: int) -> tuple[Call, bytearray]:
    records = Batch(values=[b"x" * 1000]).encode()
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="orders", partition_data=[data])
    body = encode(ProduceRequest(acks=acks, timeout_ms=9000, topic_data=[topic]), VERSION)
    frame = bytearray(body)
    call = Call(frame, Peer("", 0, "", 0), 0, lambda _: None, lambda: None)
    call.api_version = VERSION
    return call, frame


def is_free(frame: bytearray) -> bool:
    """No view of it is alive: its length can change."""
    try:
        frame.append(0)
    except BufferError:
        return False
    return True


def test_a_frame_is_free_when_its_batch_is_written_though_followers_have_not_fetched_it() -> None:
    async def scenario() -> None:
        world = World(sync=False)
        world.partitions[0].assign(PartitionState(ISR, ISR, leader=1, leader_epoch=1), 1, 0)
        call, frame = request(acks=-1)
        produce.serve(broker_of(world), call)
        assert call.frame is not frame
        assert not is_free(frame)
        await world.settle()
        assert call.answer is None
        assert is_free(frame)
        world.partitions[0].follower_fetched(2, 1, 0, -1, 0)
        assert call.answer is not None

    run(scenario)


def test_a_frame_is_not_free_while_its_batch_may_have_to_be_written_again() -> None:
    async def scenario() -> None:
        world = World(sync=True)
        call, frame = request(acks=1)
        produce.serve(broker_of(world), call)
        await turn()
        assert world.disk.jobs
        assert not is_free(frame)
        await world.settle()
        assert call.answer is not None
        await asyncio.sleep(0)
        assert is_free(frame)

    run(scenario)
