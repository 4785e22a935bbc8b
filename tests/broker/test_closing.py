"""A clean stop: all of a log is durable, and found again, with few files written."""

import asyncio
import errno
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.kit import World, run, turn

from chronik.broker.closing import close_logs
from chronik.broker.opening import Opened, open_partition
from chronik.broker.partition import Partition
from chronik.cluster.image import Topic
from chronik.model.limits import REREAD_BATCHES_MAX
from chronik.sim.disk import PowerCutError
from chronik.storage.directory import log_name
from chronik.storage.operations import Checkpoint
from chronik.storage.producer_snapshot import snapshot_path
from chronik.storage.segment import LogConfig, Storage

TOPIC = Topic(id=b"orders--" * 2, name="orders")


async def close(world: World, *partitions: Partition, together_min: int | None = None) -> None:
    """With `together_min` as a node does where so many are many."""
    volume, least = (None, 0) if together_min is None else (world.volume, together_min)
    closing = asyncio.ensure_future(
        close_logs(partitions, world.commit, world.disk, volume, together_min=least)
    )
    await world.settle()
    await closing


async def checkpoint(world: World, partition: Partition) -> None:
    """As `Partitions.checkpoint`."""
    doing = asyncio.ensure_future(
        world.commit.operate(
            partition, partition.log.checkpoint, lambda: partition.producers_writer(sync=True)
        )
    )
    await world.settle()
    done = await doing
    assert isinstance(done, Checkpoint)
    partition.checkpointed_at = done.end_offset


def reopened(world: World, partition: Partition, *, power_cut: bool = True) -> Opened:
    """After a clean stop, and perhaps a power cut that takes what is not durable."""
    if power_cut:
        world.fs.crash(Random(1))
    points = {log_name(TOPIC.name, partition.index): partition.log.synced_offset}
    opened = open_partition(
        Storage(world.fs), "/topics", TOPIC, partition.index, points, clean=True
    )
    assert opened is not None
    return opened


def told(producers: Any) -> dict[int, Any]:
    return {one.producer_id: (one.epoch, one.batches) for one in producers}


async def filled(world: World, partition: Partition, batches: int, first: int = 0) -> None:
    for number in range(first, first + batches):
        producer = {"producer_id": 7 + number % 3, "producer_epoch": 0, "sequence": number // 3}
        world.produce(partition, number, **producer)
        await world.settle()


async def grown(world: World, partition: Partition, batches: int) -> None:
    """By batches of no producer that is remembered."""
    for number in range(batches):
        world.produce(partition, number)
        await world.settle()


def delete_below(partition: Partition, offset: int) -> None:
    """Records, and the segments that hold nothing else; one segment is left."""
    operate(partition, partition.log.advance_start(offset))
    operate(partition, partition.log.expire(0, -1, -1, partition.log.end_offset))
    assert len(partition.log.segments) == 1


def operate(partition: Partition, operation: Any) -> None:
    if operation is not None:
        operation.execute()
        partition.log.apply(operation)


def files(world: World, partition: Partition) -> set[str]:
    names = world.fs.listdir(partition.log.directory)
    return {name.partition(".")[2] or name for name in names} - {"metadata", "log"}


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.integers(0, 8) | st.sampled_from(["checkpoint", "start", "expire"]), max_size=12
    ),
    sync=st.booleans(),
    power_cut=st.booleans(),
    segment_bytes=st.sampled_from([500, 10**6]),
    together_min=st.sampled_from([None, 1, 2]),
)
def test_fm54_all_of_a_closed_log_is_found_again_also_after_a_power_cut(
    steps: list[int | str],
    sync: bool,
    power_cut: bool,
    segment_bytes: int,
    together_min: int | None,
) -> None:
    async def scenario() -> None:
        world = World(sync=sync)
        partition = world.partitions[0]
        partition.log.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=300)
        await filled(world, partition, 1)
        for step in steps:
            if step == "checkpoint":
                await checkpoint(world, partition)
            elif step == "start":
                operate(partition, partition.log.advance_start(partition.log.end_offset - 1))
            elif step == "expire":
                operate(partition, partition.log.expire(0, -1, -1, partition.log.end_offset))
            else:
                assert isinstance(step, int)
                await filled(world, partition, step, partition.log.end_offset)
        log = partition.log
        expected = told(partition.state.producers)
        await close(world, partition, together_min=together_min)
        assert log.synced_offset == log.end_offset
        opened = reopened(world, partition, power_cut=power_cut)
        again = opened.log
        assert (again.start_offset, again.end_offset) == (log.start_offset, log.end_offset)
        assert again.epochs.entries() == log.epochs.entries()
        assert list(again.headers(again.start_offset)) == list(log.headers(log.start_offset))
        if log.start_offset == 0 or not power_cut:
            assert told(opened.producers) == expected

    run(scenario)


@pytest.mark.parametrize("sync", [True, False])
def test_few_batches_without_a_checkpoint_get_no_files(sync: bool) -> None:
    async def scenario() -> None:
        world = World(3, sync=sync)
        for partition in world.partitions:
            await filled(world, partition, REREAD_BATCHES_MAX)
        syncs = world.fs.calls["fdatasync"]
        await close(world, *world.partitions)
        assert world.fs.calls["fdatasync"] - syncs == (0 if sync else 3), "the bytes themselves"
        for partition in world.partitions:
            assert files(world, partition) == set()
            opened = reopened(world, partition)
            assert opened.checkpointed_at == -1
            assert opened.log.end_offset == REREAD_BATCHES_MAX
            assert told(opened.producers) == told(partition.state.producers)

    run(scenario)


def test_many_batches_without_a_checkpoint_get_files() -> None:
    async def scenario() -> None:
        world = World()
        [partition] = world.partitions
        await filled(world, partition, REREAD_BATCHES_MAX + 1)
        await close(world, partition)
        assert {"index", "timeindex", "snapshot"} < files(world, partition)
        assert partition.checkpointed_at == partition.log.end_offset

    run(scenario)


@pytest.mark.parametrize(("since", "is_written"), [(REREAD_BATCHES_MAX, False), (40, True)])
def test_only_what_is_younger_than_the_checkpoint_counts(since: int, is_written: bool) -> None:
    async def scenario() -> None:
        world = World()
        [partition] = world.partitions
        partition.log.config = LogConfig(index_interval_bytes=10**6)
        await filled(world, partition, 60)
        await checkpoint(world, partition)
        await filled(world, partition, since, 60)
        await close(world, partition)
        assert (partition.checkpointed_at == 60 + since) is is_written
        opened = reopened(world, partition)
        assert opened.log.end_offset == 60 + since
        assert told(opened.producers) == told(partition.state.producers)

    run(scenario)


def test_a_log_whose_files_went_with_a_cut_gets_new_ones() -> None:
    async def scenario() -> None:
        world = World()
        [partition] = world.partitions
        await filled(world, partition, 30)
        await checkpoint(world, partition)
        operate(partition, partition.log.truncate_to(28))
        partition.checkpointed_at = 28
        await close(world, partition)
        assert {"index", "timeindex", "snapshot"} < files(world, partition)

    run(scenario)


def test_producers_of_deleted_segments_are_kept_by_a_close() -> None:
    """The checkpoint's snapshot went with the segments; what is left is a few batches."""

    async def scenario() -> None:
        world = World()
        [partition] = world.partitions
        partition.log.config = LogConfig(segment_bytes=10 * 90)
        await filled(world, partition, 12)
        await checkpoint(world, partition)
        await grown(world, partition, 21)
        delete_below(partition, partition.log.segments[-1].base_offset)
        await close(world, partition)
        opened = reopened(world, partition, power_cut=False)
        assert len(told(opened.producers)) == 3

    run(scenario)


def test_producers_of_a_snapshot_below_the_log_start_are_kept_by_a_close() -> None:
    async def scenario() -> None:
        world = World()
        [partition] = world.partitions
        partition.log.config = LogConfig(segment_bytes=10 * 90)
        await filled(world, partition, 12)
        await grown(world, partition, 10)
        base = partition.log.segments[-1].base_offset
        while partition.log.segments[-1].base_offset == base:
            await grown(world, partition, 1)
        await checkpoint(world, partition)
        await grown(world, partition, 3)
        delete_below(partition, partition.log.end_offset - 1)
        await close(world, partition)
        opened = reopened(world, partition, power_cut=False)
        assert len(told(opened.producers)) == 3

    run(scenario)


def test_batches_behind_an_older_snapshot_are_read_though_the_index_is_younger() -> None:
    async def scenario() -> None:
        world = World()
        [partition] = world.partitions
        await filled(world, partition, 6)
        await checkpoint(world, partition)
        await filled(world, partition, 2, 6)
        await close(world, partition)
        world.fs.unlink(snapshot_path(partition.log.directory, 6))
        opened = reopened(world, partition, power_cut=False)
        assert opened.checkpointed_at == 6
        assert told(opened.producers) == told(partition.state.producers)

    run(scenario)


def test_one_log_that_cannot_be_closed_is_told_after_the_others_are() -> None:
    async def scenario() -> None:
        world = World(3, sync=False)
        for partition in world.partitions:
            await filled(world, partition, 2)
        world.fs.fail("fdatasync", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            await close(world, *world.partitions)
        assert [one.log.failed for one in world.partitions] == [True, False, False]
        assert [one.log.synced_offset for one in world.partitions[1:]] == [2, 2]
        assert not any(one.busy for one in world.partitions)
        with pytest.raises(OSError, match="recovered"):
            await close(world, *world.partitions)

    run(scenario)


def test_a_close_waits_for_what_is_under_way() -> None:
    async def scenario() -> None:
        world = World()
        [partition] = world.partitions
        world.produce(partition, 1)
        await turn()
        assert partition.busy
        closing = asyncio.ensure_future(close_logs([partition], world.commit, world.disk))
        await turn()
        assert not closing.done()
        await world.settle()
        await closing
        assert partition.log.synced_offset == 1

    run(scenario)


# ---- many logs, synced by one call


async def many(count: int, batches: int = 2) -> World:
    """Logs with batches that are in the page cache only."""
    world = World(count, sync=False)
    for partition in world.partitions:
        await filled(world, partition, batches)
    return world


def synced_to(world: World) -> list[int]:
    return [one.log.synced_offset for one in world.partitions]


@pytest.mark.parametrize("batches", [2, REREAD_BATCHES_MAX + 1])
def test_fm54_many_logs_are_durable_after_one_sync(batches: int) -> None:
    async def scenario() -> None:
        world = await many(5, batches)
        before = world.fs.calls["fdatasync"]
        await close(world, *world.partitions, together_min=5)
        assert world.fs.calls["fdatasync"] == before
        assert synced_to(world) == [batches] * 5
        world.fs.crash(Random(batches))
        for partition in world.partitions:
            opened = reopened(world, partition, power_cut=False)
            assert opened.log.end_offset == batches
            assert told(opened.producers) == told(partition.state.producers)

    run(scenario)


def test_a_few_logs_are_synced_one_by_one() -> None:
    async def scenario() -> None:
        world = await many(5)
        await close(world, *world.partitions, together_min=6)
        assert world.fs.calls["syncfs"] == 0
        assert synced_to(world) == [2] * 5

    run(scenario)


def test_what_is_synced_already_does_not_count_as_many() -> None:
    async def scenario() -> None:
        world = await many(5)
        await close(world, *world.partitions[:2])
        for partition in world.partitions[:2]:
            await filled(world, partition, REREAD_BATCHES_MAX + 1, 2)
            await checkpoint(world, partition)
        await close(world, *world.partitions, together_min=4)
        assert world.fs.calls["syncfs"] == 0

    run(scenario)


def test_where_the_sync_of_all_fails_each_log_is_synced(caplog: pytest.LogCaptureFixture) -> None:
    """As when another process's file on the same disk could not be written."""

    async def scenario() -> None:
        world = await many(5)
        world.fs.create("/other")
        world.fs.lose_written("/other")
        before = world.fs.calls["fdatasync"]
        await close(world, *world.partitions, together_min=1)
        assert world.fs.calls["fdatasync"] - before == 5
        assert synced_to(world) == [2] * 5

    run(scenario)
    assert "synced one by one" in caplog.text


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.parametrize("early", [True, False])
def test_fm63_the_log_that_was_not_written_is_told_and_the_others_are_durable(
    forgets: bool, early: bool
) -> None:
    """Written back by the kernel before the stop (`early`), or in the sync of all."""

    async def scenario() -> None:
        world = await many(4)
        world.fs.forgets_failed_syncs = forgets
        bad = world.partitions[1]
        if early:
            world.fs.lose_written(bad.log.segments[-1].path)
        else:
            world.fs.fail("syncfs", errno.EIO, after=1)
        with pytest.raises(OSError, match="Input/output"):
            await close(world, *world.partitions, together_min=1)
        assert [one.log.failed for one in world.partitions] == [False, True, False, False]
        assert synced_to(world) == [2, 0, 2, 2], "what the next start may rely on"
        world.fs.crash(Random(1))
        for partition in world.partitions:
            opened = reopened(world, partition, power_cut=False)
            if partition is not bad:
                assert opened.log.end_offset == 2

    run(scenario)


def test_logs_on_another_file_system_are_synced_one_by_one() -> None:
    async def scenario() -> None:
        world = await many(4)
        world.fs.mounts.add(world.partitions[2].log.directory)
        await close(world, *world.partitions, together_min=1)
        assert world.fs.calls["syncfs"] == 0, "not even of the others: it would be done twice"
        assert synced_to(world) == [2] * 4
        world.fs.crash(Random(2))
        for partition in world.partitions:
            assert reopened(world, partition, power_cut=False).log.end_offset == 2

    run(scenario)


@pytest.mark.parametrize("works", range(5))
def test_fm54_a_power_cut_in_the_middle_leaves_whole_batches(works: int) -> None:
    """Nothing was called clean yet: the next start looks at the tails and finds what is durable."""

    async def scenario() -> None:
        world = await many(4)
        written = [list(one.log.headers(0)) for one in world.partitions]
        world.fs.power_cut_after = works
        if works < 4:
            with pytest.raises(PowerCutError):
                await close(world, *world.partitions, together_min=1)
            assert synced_to(world) == [0] * 4
        else:
            await close(world, *world.partitions, together_min=1)
        world.fs.crash(Random(works))
        for number, headers in enumerate(written):
            storage = Storage(world.fs)
            opened = open_partition(storage, "/topics", TOPIC, number, {}, clean=False)
            assert opened is not None
            found = list(opened.log.headers(0))
            assert found == headers[: len(found)]
            assert len(found) == 2 or number >= works

    run(scenario)
