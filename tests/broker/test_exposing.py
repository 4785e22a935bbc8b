"""Followers fetch what the leader's disk has not synced yet: what they see is never taken back."""

import errno
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.kit import SYNCED_BY_KERNEL, World, contents, run, turn

from chronik.broker.asking import asked_of
from chronik.broker.partition import Partition
from chronik.cluster.image import PartitionState
from chronik.model import limits
from chronik.model.errors import ErrorCode
from chronik.wire.records import scan

OK = ErrorCode.NONE
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
ISR = (1, 2)


@pytest.fixture(params=[False, True], ids=["threads", "kernel"], autouse=True)
def by_kernel(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whoever syncs, what is promised is the same."""
    token = SYNCED_BY_KERNEL.set(request.param)
    yield request.param
    SYNCED_BY_KERNEL.reset(token)


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SYNC_RETRY_MS", 0)


async def led() -> tuple[World, Partition]:
    """A partition with a follower; its first batch, which makes the files, is committed."""
    world = World()
    world.fs.forgets_failed_syncs = True
    partition = world.partitions[0]
    partition.assign(PartitionState(ISR, ISR, leader=1, leader_epoch=1), 1, 0)
    world.produce(partition, 0)
    await world.settle()
    fetched(partition, 1)
    assert world.answers.pop() == (0, OK)
    return world, partition


def fetched(partition: Partition, offset: int) -> None:
    """The follower has everything below `offset` on its disk."""
    partition.follower_fetched(2, offset, 0, -1, 0)


def offered(partition: Partition) -> dict[int, bytes]:
    """What a follower can read, by offset."""
    data = b"".join(partition.read_for_follower(0, 1 << 20, at_least_one_batch=True).slices)
    return {header.base_offset: data[at : at + header.size] for at, header in scan(data)}


def test_followers_fetch_what_is_not_synced_and_clients_wait_for_it() -> None:
    async def scenario() -> None:
        world, partition = await led()
        woken: list[int] = []
        partition.follower_waiters[lambda: woken.append(1)] = None
        world.produce(partition, 1)
        await turn()
        assert woken
        assert list(offered(partition)) == [0, 1]
        assert (partition.state.durable_end, partition.state.high_watermark) == (1, 1)
        assert not world.answers
        woken.clear()
        world.disk.step()
        assert world.answers == [(1, OK)]
        assert not woken, "they know of it"
        assert partition.state.high_watermark == 1, "the follower has not said that it has it"
        fetched(partition, 2)
        assert [offset for offset, _ in contents(partition)] == [0, 1]

    run(scenario)


def test_fm23_a_follower_that_is_faster_than_the_leaders_disk_commits_nothing_alone() -> None:
    async def scenario() -> None:
        world, partition = await led()
        world.produce(partition, 1)
        await turn()
        fetched(partition, 2)
        assert partition.state.high_watermark == 1
        world.disk.step()
        assert partition.state.high_watermark == 2

    run(scenario)


def test_a_leader_without_followers_writes_and_syncs_in_one_go() -> None:
    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        for number in range(2):
            world.produce(partition, number)
            await turn()
            assert list(offered(partition)) == list(range(number))
            await world.settle()

    run(scenario)


def test_fm63_a_failed_sync_keeps_the_offsets_and_is_tried_again() -> None:
    async def scenario() -> None:
        world, partition = await led()
        world.produce(partition, 1)
        await turn()
        seen = offered(partition)
        world.fs.fail("fdatasync", errno.EIO)
        world.disk.step()
        assert world.answers == [(1, STORAGE)]
        assert offered(partition) == seen
        assert world.produce(partition, 2) == 2, "offset 1 is taken: a follower may have it"
        await world.settle()
        assert world.answers[1:] == [(2, OK)]
        assert not world.is_failing()
        fetched(partition, 3)
        world.fs.crash(Random(1))
        kept = world.fs.contents("/topics/orders-0/00000000000000000000.log")
        assert kept.startswith(b"".join(seen.values()))

    run(scenario)


def test_a_failed_sync_is_tried_again_without_a_new_batch() -> None:
    """An idempotent producer sends the same batch again, which is no new one."""

    async def scenario() -> None:
        world, partition = await led()
        producer = {"producer_id": 7, "producer_epoch": 0, "sequence": 0}
        world.produce(partition, 1, **producer)
        await turn()
        world.fs.fail("fdatasync", errno.EIO, times=3)
        for _ in range(3):
            world.disk.step()
            await turn()
        world.produce(partition, 2, **producer)
        assert world.answers == [(1, STORAGE)]
        await world.settle()
        assert world.answers == [(1, STORAGE), (2, OK)]
        assert list(offered(partition)) == [0, 1]

    run(scenario)


def test_acks_all_waits_while_it_is_open_whether_the_batch_is_committed() -> None:
    async def scenario() -> None:
        world, partition = await led()
        world.produce(partition, 1)
        codes: list[ErrorCode] = []
        partition.committed_waiters.add(2, codes.append)
        await turn()
        fetched(partition, 2)
        world.fs.fail("fdatasync", errno.EIO)
        world.disk.step()
        assert codes == []
        await world.settle()
        assert codes == [OK]

    run(scenario)


def test_what_came_during_a_failing_sync_was_not_seen_and_is_refused() -> None:
    async def scenario() -> None:
        world, partition = await led()
        world.produce(partition, 1)
        await turn()
        world.produce(partition, 2)
        world.fs.fail("fdatasync", errno.EIO)
        world.disk.step()
        assert world.answers == [(1, STORAGE), (2, STORAGE)]
        assert world.produce(partition, 3) == 2
        await world.settle()
        assert world.answers[2:] == [(3, OK)]

    run(scenario)


def test_fm63_a_refused_copy_is_undone_because_nobody_saw_it() -> None:
    async def scenario() -> None:
        world, partition = await led()
        world.fs.fail("pwritev", errno.ENOSPC)
        world.produce(partition, 1)
        await world.settle()
        assert world.answers == [(1, STORAGE)]
        assert list(offered(partition)) == [0]
        assert world.produce(partition, 2) == 1
        await world.settle()
        assert world.answers == [(1, STORAGE), (2, OK)]

    run(scenario)


def test_a_leader_that_must_follow_keeps_what_it_showed_and_syncs_it() -> None:
    async def scenario() -> None:
        world, partition = await led()
        world.produce(partition, 1)
        await turn()
        partition.assign(PartitionState(ISR, ISR, leader=2, leader_epoch=2), 1, 0)
        assert world.answers == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        assert partition.state.durable_end == 1
        await world.settle()
        assert partition.state.durable_end == partition.state.log_end == 2
        assert partition.state.high_watermark == 1

    run(scenario)


@settings(max_examples=80)
@given(st.integers(0, 2**32))
def test_no_offset_ever_shows_two_batches_whatever_the_disk_does(seed: int) -> None:
    async def scenario() -> None:
        rng = Random(seed)
        world, partition = await led()
        seen: dict[int, bytes] = {}
        acked: dict[int, int] = {}
        for number in range(1, 60):
            acked[number] = world.produce(partition, number)
            if rng.random() < 0.6:
                await turn()
            if rng.random() < 0.2:
                world.fs.fail(rng.choice(["pwritev", "fdatasync"]), errno.EIO)
            while world.disk.jobs and rng.random() < 0.7:
                world.disk.step()
            shown = offered(partition)
            assert all(shown.get(offset) == batch for offset, batch in seen.items())
            seen = shown
            if rng.random() < 0.5:
                fetched(partition, partition.log.end_offset)
        world.fs.heal()
        await world.settle()
        shown = offered(partition)
        assert partition.state.durable_end == partition.state.log_end == len(shown)
        for number, code in world.answers:
            if code is OK:
                assert f"{number}/0".encode() in shown[acked[number]]
        world.fs.crash(rng)
        kept = world.fs.contents("/topics/orders-0/00000000000000000000.log")
        assert kept == b"".join(shown.values())

    run(scenario)


def test_fm28_who_led_names_the_epoch_of_what_its_disk_has() -> None:
    """The new leader compares that epoch's end: a later one would hide that the logs part there."""

    async def scenario() -> None:
        world, partition = await led()
        partition.assign(PartitionState(ISR, ISR, leader=1, leader_epoch=2), 1, 0)
        world.produce(partition, 1)
        await turn()
        assert partition.log.epochs.latest == 2
        partition.assign(PartitionState(ISR, ISR, leader=2, leader_epoch=3), 1, 0)
        epoch, offset, last_epoch, _ = asked_of(partition)
        assert (epoch, offset, last_epoch) == (3, 1, 1)

    run(scenario)
