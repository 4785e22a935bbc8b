"""Followers get the newest write from memory: the bytes of the file, and never another's."""

from tests.broker.kit import World, run

from chronik.broker.newest import newest_of
from chronik.broker.partition import Partition
from chronik.cluster.image import PartitionState
from chronik.model.limits import BRIEF_ANSWER_BYTES_MAX
from chronik.sim.disk import SimDisk
from chronik.storage.index import SegmentIndex
from chronik.storage.segment import Read, Segment, Storage
from chronik.storage.write import Part, Write

ISR = (1, 2, 3)
MAX = 1 << 20


def led() -> tuple[World, Partition]:
    world = World()
    partition = world.partitions[0]
    partition.assign(PartitionState(ISR, ISR, leader=1, leader_epoch=1), 1, 0)
    return world, partition


def of_file(partition: Partition, offset: int) -> Read:
    log = partition.log
    return log.read(offset, MAX, log.end_offset, at_least_one_batch=True, whole=True)


def offered(partition: Partition, offset: int, max_bytes: int = MAX) -> Read:
    return partition.read_for_follower(offset, max_bytes, at_least_one_batch=True)


def fetched(partition: Partition, offset: int) -> None:
    for follower in (2, 3):
        partition.follower_fetched(follower, offset, 0, -1, 0)


def test_both_followers_get_what_the_file_has_without_reading_it() -> None:
    async def scenario() -> None:
        world, partition = led()
        for number in range(3):
            world.produce(partition, number)
            await world.settle()
            newest = offered(partition, number)
            assert newest is offered(partition, number)
            expected = of_file(partition, number)
            assert newest[1:] == expected[1:]
            assert b"".join(newest.slices) == b"".join(expected.slices)
            fetched(partition, number + 1)
            assert partition.state.high_watermark == number + 1
            assert offered(partition, number) is not offered(partition, number), "it is let go"

    run(scenario)


def test_who_lacks_more_or_takes_less_reads_the_file() -> None:
    async def scenario() -> None:
        world, partition = led()
        for number in range(2):
            world.produce(partition, number)
            await world.settle()
        newest = offered(partition, 1)
        assert offered(partition, 1) is newest
        both = offered(partition, 0)
        assert both.size > newest.size
        assert offered(partition, 1, newest.size) is newest
        assert offered(partition, 1, newest.size - 1) is not newest

    run(scenario)


def test_a_new_role_forgets_it() -> None:
    """Another leader may have put other records at the same offsets by the time it leads again."""

    async def scenario() -> None:
        world, partition = led()
        world.produce(partition, 0)
        await world.settle()
        newest = offered(partition, 0)
        partition.assign(PartitionState(ISR, ISR, leader=2, leader_epoch=2), 1, 0)
        assert offered(partition, 0) is not newest
        partition.assign(PartitionState(ISR, ISR, leader=1, leader_epoch=3), 1, 0)
        assert offered(partition, 0) is not newest

    run(scenario)


def test_what_nobody_follows_is_not_kept() -> None:
    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        world.produce(partition, 0)
        await world.settle()
        assert offered(partition, 0) is not offered(partition, 0)

    run(scenario)


def test_large_writes_are_not_kept() -> None:
    storage = Storage(SimDisk())
    write = Write(storage, "/topics/t-0", 7, None)
    write.parts.append(
        Part(Segment(storage, "/topics/t-0", 0, 90, 4096), SegmentIndex(0), created=False)
    )
    write.parts[0].buffers.append(b"batch")
    write.end_offset, write.size = 9, 5
    newest = newest_of(write)
    assert newest is not None
    assert newest.read == Read([memoryview(b"batch")], 5, 7, 0, 90)
    assert newest.fits(7, 5, 9)
    for asked in ((6, 5, 9), (8, 5, 9), (7, 4, 9), (7, 5, 10), (7, 5, 8)):
        assert not newest.fits(*asked)
    write.size = BRIEF_ANSWER_BYTES_MAX + 1
    assert newest_of(write) is None
