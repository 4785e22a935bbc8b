"""The loop copies, the kernel syncs: and what happens where it cannot."""

import errno
from collections.abc import Iterator
from functools import partial

import pytest
from tests.broker.kit import SYNCED_BY_KERNEL, World, contents, run, turn

from chronik.broker.syncing import SYNCS_MAX, open_syncing
from chronik.model.errors import ErrorCode
from chronik.sim.disk import SimDisk
from chronik.storage.fs import RealFileSystem

OK = ErrorCode.NONE
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture(autouse=True)
def by_kernel() -> Iterator[None]:
    token = SYNCED_BY_KERNEL.set(True)
    yield
    SYNCED_BY_KERNEL.reset(token)


async def begun(partitions: int = 1) -> World:
    """Every partition has its file, which only a thread may create."""
    world = World(partitions)
    for partition in world.partitions:
        world.produce(partition, 0)
    await world.settle()
    world.answers.clear()
    return world


def by_threads(world: World) -> int:
    """How many of the jobs that wait are threads'."""
    return sum(not isinstance(job, partial) for job in world.disk.jobs)


def test_the_loop_copies_and_no_thread_is_asked() -> None:
    async def scenario() -> None:
        world = await begun()
        copied, synced = world.fs.calls["pwritev"], world.fs.calls["fdatasync"]
        world.produce(world.partitions[0], 1)
        await turn()
        assert (world.fs.calls["pwritev"], world.fs.calls["fdatasync"]) == (copied + 1, synced)
        assert (len(world.disk.jobs), by_threads(world)) == (1, 0)
        assert world.answers == []
        world.disk.step()
        assert world.answers == [(1, OK)]
        assert world.fs.calls["fdatasync"] == synced + 1

    run(scenario)


def test_a_failed_sync_is_refused_and_what_comes_next_takes_its_place() -> None:
    async def scenario() -> None:
        world = await begun()
        (partition,) = world.partitions
        world.fs.fail("fdatasync", errno.EIO)
        assert world.produce(partition, 1) == 1
        await world.settle()
        assert world.answers == [(1, STORAGE)]
        assert world.is_failing()
        assert world.produce(partition, 2) == 1
        await world.settle()
        assert world.answers == [(1, STORAGE), (2, OK)]
        assert [b"2/0" in data for _, data in contents(partition)] == [False, True]

    run(scenario)


def test_a_thread_does_what_the_kernel_does_not_take() -> None:
    async def scenario() -> None:
        world = await begun()
        world.kernel.takes = False
        world.produce(world.partitions[0], 1)
        await turn()
        assert by_threads(world) == 1
        await world.settle()
        assert world.answers == [(1, OK)]
        assert len(contents(world.partitions[0])) == 2

    run(scenario)


def test_so_many_at_once_and_the_others_by_threads() -> None:
    async def scenario() -> None:
        world = await begun(SYNCS_MAX + 6)
        for number, partition in enumerate(world.partitions):
            world.produce(partition, number)
        await turn()
        assert len(world.disk.jobs) - by_threads(world) == SYNCS_MAX
        await world.settle()
        assert sorted(world.answers) == [(number, OK) for number in range(SYNCS_MAX + 6)]

    run(scenario)


def test_what_comes_while_all_places_are_taken_is_not_the_kernels() -> None:
    async def scenario() -> None:
        world = await begun(SYNCS_MAX + 2)
        for partition in world.partitions[:SYNCS_MAX]:
            world.produce(partition, 1)
        await turn()
        for partition in world.partitions[SYNCS_MAX:]:
            world.produce(partition, 2)
        await turn()
        assert len(world.disk.jobs) - by_threads(world) == SYNCS_MAX
        assert by_threads(world) == 2
        await world.settle()
        assert len(world.answers) == SYNCS_MAX + 2

    run(scenario)


def test_drain_waits_for_the_kernel() -> None:
    async def scenario() -> None:
        world = await begun()
        world.produce(world.partitions[0], 1)
        await turn()
        drained = world.loop.create_task(world.commit.drain())
        await turn()
        assert not drained.done()
        world.disk.step()
        await drained
        assert world.answers == [(1, OK)]

    run(scenario)


def test_only_the_systems_own_files_are_the_kernels_business() -> None:
    async def scenario() -> None:
        world = World()
        assert open_syncing(SimDisk(), world.loop, world.clock) is None
        found = open_syncing(RealFileSystem(), world.loop, world.clock)
        if found is not None:
            assert found.is_idle
            found.close()

    run(scenario)
