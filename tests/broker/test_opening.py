"""What a partition remembers of its producers over a crash."""

from random import Random

import pytest
from tests.broker.kit import World, run, turn
from tests.replica.batches import batch

from chronik.broker.opening import open_partition
from chronik.cluster.image import Topic
from chronik.model.limits import SEQUENCE_WINDOW_BATCHES
from chronik.storage.segment import Storage

TOPIC = Topic(id=b"orders--" * 2, name="orders")


@pytest.mark.parametrize("durable", [0, 1, 3, 10])
@pytest.mark.parametrize("pending", [0, 1, SEQUENCE_WINDOW_BATCHES])
def test_fm70_a_crash_after_a_snapshot_leaves_every_producer_able_to_go_on(
    durable: int, pending: int
) -> None:
    """The snapshot is taken while batches wait for the disk; the crash takes them away."""

    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        producer = {"producer_id": 7, "producer_epoch": 0}
        world.produce(partition, 1000)
        for sequence in range(durable):
            world.produce(partition, sequence, **producer, sequence=sequence)
            await world.settle()
        await world.settle()
        for sequence in range(durable, durable + pending):
            world.produce(partition, sequence, **producer, sequence=sequence)
        partition.producers_writer(sync=True)()
        await turn()
        world.disk.jobs.clear()
        world.fs.crash(Random(1))
        opened = open_partition(Storage(world.fs), "/topics", TOPIC, 0, {}, clean=False)
        assert opened is not None
        assert opened.producers is not None
        assert opened.log.end_offset == durable + 1
        _, retried = batch(1, (7, 0, durable))
        assert opened.producers.check(retried) is None, "taken as new"
        if durable and pending < SEQUENCE_WINDOW_BATCHES:
            _, acked = batch(1, (7, 0, durable - 1))
            original = opened.producers.check(acked)
            assert original is not None
            assert original.base_offset == durable

    run(scenario)
