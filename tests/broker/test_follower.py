"""A follower's fetcher with a leader that the test plays: what it takes over, and what not."""

import asyncio
from typing import Any, cast

import pytest
from tests.broker.kit import World, run, turn
from tests.clients.batches import Batch

from chronik.broker.partition import Partition
from chronik.broker.peering import Answered
from chronik.broker.replication import FETCH_VERSION, Replication
from chronik.cluster.image import PartitionState
from chronik.wire.fetch_response import FetchResponse, FetchResult, write_fetch_response
from chronik.wire.records import patch

LEADER, ME, EPOCH = 1, 2, 1
ISR = (LEADER, ME)


class Peers:
    """Keeps who waits for the answer of the poll that is out."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Answered] = asyncio.Queue()

    def request(self, *arguments: Any) -> None:
        assert self._waiting.empty(), "one poll at a time"
        self._waiting.put_nowait(arguments[-1])

    def post(self, message: object) -> None:
        pass

    async def answer(self, partition: Partition, records: bytes) -> None:
        answered = await self._waiting.get()
        result = FetchResult(partition.index, 0, 0, 0, 0, (records,))
        response = FetchResponse([(partition.topic_id, [result])], session_id=7)
        answered(memoryview(b"".join(write_fetch_response(FETCH_VERSION, response))))


def batch(offset: int, value: bytes) -> bytearray:
    data = bytearray(Batch(values=[value]).encode())
    patch(memoryview(data), offset, EPOCH)
    return data


def of_file(partition: Partition) -> bytes:
    log = partition.log
    read = log.read(0, 1 << 20, log.end_offset, at_least_one_batch=True)
    return b"".join(read.slices)


@pytest.mark.parametrize("damaged", [-1, 70])
def test_a_damaged_batch_is_not_taken_over_and_asked_for_again(
    damaged: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        world, peers = World(sync=False), Peers()
        partition = world.partitions[0]
        partition.assign(PartitionState(ISR, ISR, leader=LEADER, leader_epoch=EPOCH), ME, 0)
        async with asyncio.TaskGroup() as tasks:
            replication = Replication(
                ME, cast("Any", peers), world.commit, world.disk, tasks, lambda: -1
            )
            replication.role_changed(partition)
            good, bad = batch(0, b"first"), batch(1, b"second")
            sound = bytes(bad)
            bad[damaged] ^= 1
            await peers.answer(partition, bytes(good + bad))
            await world.settle()
            assert of_file(partition) == bytes(good)
            assert "sent a damaged batch at offset 1" in caplog.text
            await peers.answer(partition, sound)
            await world.settle()
            await turn()
            assert of_file(partition) == bytes(good) + sound
            replication.stop()

    run(scenario)
