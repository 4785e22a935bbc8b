"""Group commit on a disk that moves step by step: nothing is acknowledged before it is written."""

import asyncio
import errno
import logging
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.kit import SYNCED_BY_KERNEL, World, contents, run, turn

from chronik.broker.waiters import Waiters
from chronik.model import limits
from chronik.model.errors import ErrorCode
from chronik.storage.operations import Checkpoint

OK = ErrorCode.NONE
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture(params=[False, True], ids=["threads", "kernel"], autouse=True)
def by_kernel(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whoever syncs, what is promised is the same."""
    token = SYNCED_BY_KERNEL.set(request.param)
    yield request.param
    SYNCED_BY_KERNEL.reset(token)


def test_fm20_produces_in_flight_never_share_an_offset() -> None:
    async def scenario() -> None:
        world = World()
        offsets = [world.produce(world.partitions[0], n, values=3) for n in range(50)]
        assert offsets == list(range(0, 150, 3))
        await world.settle()
        assert [offset for offset, _ in contents(world.partitions[0])] == offsets

    run(scenario)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_fm20_any_order_of_appends_and_disk_steps_keeps_every_acked_batch(seed: int) -> None:
    """Random appends to four partitions, random completions, some of them failing."""

    async def scenario() -> None:
        rng = Random(seed)
        world = World(4, workers=rng.randint(1, 4))
        sent: dict[int, tuple[int, int]] = {}
        for number in range(80):
            index = rng.randrange(4)
            sent[number] = (
                index,
                world.produce(world.partitions[index], number, rng.randint(1, 3)),
            )
            if rng.random() < 0.5:
                await turn()
            if rng.random() < 0.1:
                world.fs.fail(rng.choice(["pwritev", "fdatasync"]), errno.ENOSPC)
            while world.disk.jobs and rng.random() < 0.6:
                world.disk.step(rng.randrange(len(world.disk.jobs)))
        world.fs.heal()
        await world.settle()
        assert sorted(number for number, _ in world.answers) == list(range(80)), "one answer each"
        for index, partition in enumerate(world.partitions):
            acked = {
                sent[number][1]: number
                for number, code in world.answers
                if code is OK and sent[number][0] == index
            }
            stored = {offset: data for offset, data in contents(partition) if b"/0" in data}
            assert set(stored) == set(acked), "the acked ones and nothing else"
            for offset, number in acked.items():
                assert f"{number}/0".encode() in stored[offset]

    run(scenario)


def test_an_unsynced_write_waits_for_no_thread_unless_others_write_a_lot() -> None:
    async def scenario() -> None:
        world = World(sync=False)
        world.produce(world.partitions[0], 0)
        await world.settle()  # the first one makes the directory and the file
        world.produce(world.partitions[0], 1)
        await turn()
        assert world.answers[-1] == (1, OK)
        world.commit.copies.others_writing += 1
        world.produce(world.partitions[0], 2)
        await turn()
        assert world.answers[-1] == (1, OK)
        assert world.disk.jobs
        await world.settle()
        assert world.answers[-1] == (2, OK)

    run(scenario)


@pytest.mark.parametrize(("write_ms", "by_the_loop"), [(8, True), (30, False)])
def test_after_a_slow_unsynced_write_threads_do_them_for_a_while(
    write_ms: int, by_the_loop: bool
) -> None:
    async def scenario() -> None:
        world = World(sync=False, write_ms=write_ms)
        for number in range(3):
            world.produce(world.partitions[0], number)
            await world.settle()  # the first one makes files: that it is slow says nothing
        world.produce(world.partitions[0], 3)
        await turn()
        assert (world.answers[-1] == (3, OK)) is by_the_loop
        await world.settle()
        world.clock.advance(limits.WRITE_ON_LOOP_PAUSE_MS_MAX)
        world.produce(world.partitions[0], 4)
        await turn()
        assert world.answers[-1] == (4, OK)

    run(scenario)


def test_threads_write_for_longer_after_each_slow_write_that_soon_follows() -> None:
    async def scenario() -> None:
        world = World(sync=False, write_ms=30)
        world.produce(world.partitions[0], 0)
        await world.settle()
        world.clock.advance(limits.WRITE_ON_LOOP_PAUSE_MS_MAX)
        number = 0
        pauses_ms = []
        for _ in range(8):
            number += 1
            world.produce(world.partitions[0], number)  # slow, and done by the loop
            await turn()
            assert world.answers[-1] == (number, OK)
            pauses_ms.append(world.commit.copies.pause_ms)
            world.clock.advance(world.commit.copies.pause_ms)
        assert pauses_ms == [20, 40, 80, 160, 320, 640, 1000, 1000]
        world.clock.advance(limits.WRITE_ON_LOOP_PAUSE_MS_MAX)
        world.produce(world.partitions[0], number + 1)
        await turn()
        assert world.commit.copies.pause_ms == limits.WRITE_ON_LOOP_PAUSE_MS

    run(scenario)


@pytest.mark.parametrize("sync", [True, False])
def test_an_ack_comes_after_the_write(sync: bool) -> None:
    async def scenario() -> None:
        world = World(sync=sync)
        world.produce(world.partitions[0], 1)
        await turn()
        assert world.answers == []
        assert contents(world.partitions[0]) == []
        world.disk.step()
        assert world.answers == [(1, OK)]
        assert len(contents(world.partitions[0])) == 1
        assert (world.fs.calls["fdatasync"] > 1) is sync  # one is for the directory's own file

    run(scenario)


def test_what_arrives_together_is_written_together() -> None:
    async def scenario() -> None:
        world = World()
        for number in range(100):
            world.produce(world.partitions[0], number)
        await world.settle()
        assert world.commit.cycles == 1
        for number in range(100, 200):
            world.produce(world.partitions[0], number)
            await turn()
        await world.settle()
        assert world.commit.cycles == 3, "one under way, one for all that came meanwhile"

    run(scenario)


class Client:
    """Notes how many answers there were each time it sent."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sent: list[int] = []

    def answered(self, _: ErrorCode) -> None:
        self._world.outbox.add(self)

    def flush(self) -> None:
        self.sent.append(len(self._world.answers))


def test_the_answers_of_a_cycle_leave_together() -> None:
    async def scenario() -> None:
        world = World(8, sync=False)
        client = Client(world)
        for partition in world.partitions:
            for number in range(2):
                end_offset = world.produce(partition, number) + 1
                waiters, _ = partition.waiters_for(committed=False)
                waiters.add(end_offset, client.answered)
        await world.settle()
        assert client.sent == [16]

    run(scenario)


def test_partitions_are_spread_over_the_disk_threads() -> None:
    async def scenario() -> None:
        world = World(8, workers=4)
        for number, partition in enumerate(world.partitions):
            world.produce(partition, number)
        await turn()
        assert len(world.disk.jobs) == 4

    run(scenario)


@pytest.mark.parametrize("call", ["mkdir", "create", "pwritev", "fdatasync", "fsync_dir"])
def test_fm63_a_failing_disk_refuses_what_it_did_not_take_and_service_resumes(call: str) -> None:
    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        world.fs.fail(call, errno.ENOSPC)
        world.produce(partition, 1)
        world.produce(partition, 2)
        await world.settle()
        assert world.answers == [(1, STORAGE), (2, STORAGE)]
        assert world.is_failing()
        assert partition.state.log_end == partition.state.high_watermark == 0
        assert world.produce(partition, 3) == 0
        await world.settle()
        assert world.answers[2:] == [(3, OK)]
        assert not world.is_failing()
        assert [offset for offset, _ in contents(partition)] == [0]

    run(scenario)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_fm63_acked_batches_survive_a_failure_after_them(error: int) -> None:
    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        world.produce(partition, 1)
        await world.settle()
        world.fs.fail("pwritev", error, times=3)
        for number in (2, 3, 4):
            world.produce(partition, number)
            await world.settle()
        world.produce(partition, 5)
        await world.settle()
        assert world.answers == [(1, OK), (2, STORAGE), (3, STORAGE), (4, STORAGE), (5, OK)]
        stored = contents(partition)
        assert [offset for offset, _ in stored] == [0, 1]
        assert b"5/0" in stored[1][1]

    run(scenario)


def test_fm63_what_came_during_a_failing_write_is_refused_with_it() -> None:
    """It has offsets behind those that will never be; its producers send it again."""

    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        world.produce(partition, 1)
        await turn()
        world.produce(partition, 2)
        world.fs.fail("pwritev", errno.EIO)
        world.disk.step()
        assert world.answers == [(1, STORAGE), (2, STORAGE)]
        assert partition.state.log_end == 0
        await world.settle()

    run(scenario)


def test_fm63_one_partition_that_fails_does_not_touch_another() -> None:
    async def scenario() -> None:
        world = World(2, workers=1)
        for number, partition in enumerate(world.partitions):
            world.produce(partition, number)
        world.fs.fail("mkdir", errno.EIO)
        await world.settle()
        assert sorted(world.answers) == [(0, STORAGE), (1, OK)]

    run(scenario)


def test_an_outage_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world = World()
        world.fs.fail("pwritev", errno.ENOSPC, times=20)
        for number in range(20):
            world.produce(world.partitions[0], number)
            await world.settle()

    with caplog.at_level(logging.ERROR):
        run(scenario)
    assert len(caplog.records) == 1
    assert "free some space" in caplog.text
    assert "Traceback" not in caplog.text


def test_fm70_a_refused_batch_is_new_when_it_comes_again() -> None:
    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        world.fs.fail("pwritev", errno.ENOSPC)
        producer = {"producer_id": 7, "producer_epoch": 0}
        world.produce(partition, 1, **producer, sequence=0)
        await world.settle()
        world.produce(partition, 2, **producer, sequence=0)
        await turn()
        world.produce(partition, 3, **producer, sequence=0)
        assert world.answers == [(1, STORAGE)], "the duplicate waits for its original"
        await world.settle()
        assert world.answers[1:] == [(2, OK), (3, OK)]
        assert world.produce(partition, 4, **producer, sequence=0) == 0
        assert len(contents(partition)) == 1

    run(scenario)


# ---- operations between writes


def test_an_operation_waits_for_the_write_and_the_next_write_for_it() -> None:
    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        world.produce(partition, 1)
        await turn()
        checkpoint = asyncio.ensure_future(
            world.commit.operate(partition, partition.log.checkpoint)
        )
        await turn()
        world.produce(partition, 2)
        await turn()
        assert len(world.disk.jobs) == 1, "one at a time"
        world.disk.step()
        await turn()
        assert len(world.disk.jobs) == 1
        assert world.answers == [(1, OK)]
        world.disk.step()
        assert isinstance(await checkpoint, Checkpoint)
        await world.settle()
        assert world.answers == [(1, OK), (2, OK)]

    run(scenario)


def test_a_failing_operation_gives_the_log_back() -> None:
    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        world.produce(partition, 1)
        await world.settle()
        world.fs.fail(None, errno.ENOSPC, times=1)
        operation = asyncio.ensure_future(world.commit.operate(partition, partition.log.checkpoint))
        await world.settle()
        with pytest.raises(OSError, match="space"):
            await operation
        world.produce(partition, 2)
        await world.settle()
        assert world.answers == [(1, OK), (2, OK)]

    run(scenario)


def test_a_cancelled_operation_keeps_the_log_until_the_disk_is_done_with_it() -> None:
    """Whoever stops waiting does not stop the disk: a second one must not run beside it."""

    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        world.produce(partition, 1)
        await world.settle()
        operation = asyncio.ensure_future(world.commit.operate(partition, partition.log.checkpoint))
        await turn()
        operation.cancel()
        await turn()
        world.produce(partition, 2)
        await turn()
        assert len(world.disk.jobs) == 1, "the cancelled one is still with the disk"
        await world.settle()
        assert world.answers == [(1, OK), (2, OK)]

    run(scenario)


def test_an_operation_cancelled_at_the_moment_of_its_turn_passes_the_turn_on() -> None:
    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        world.produce(partition, 1)
        await turn()
        operation = asyncio.ensure_future(world.commit.operate(partition, partition.log.checkpoint))
        await turn()
        world.disk.step()  # gives the turn to the operation ...
        operation.cancel()  # ... which is gone before it runs
        await turn()
        world.produce(partition, 2)
        await world.settle()
        assert world.answers == [(1, OK), (2, OK)]

    run(scenario)


# ---- draining


def test_drain_waits_for_what_is_under_way() -> None:
    async def scenario() -> None:
        world = World(3, workers=1)
        for number, partition in enumerate(world.partitions):
            world.produce(partition, number)
        drained = asyncio.ensure_future(world.commit.drain())
        await turn()
        assert not drained.done()
        await world.settle()
        await drained
        assert len(world.answers) == 3

    run(scenario)


def test_drain_ends_when_the_last_in_the_queue_cannot_be_written() -> None:
    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        partition.log.failed = True
        drained = asyncio.ensure_future(world.commit.drain())  # looks before the cycle starts
        world.produce(partition, 1)
        await world.settle()
        await drained
        assert world.answers == [(1, STORAGE)]

    run(scenario)


def test_an_error_that_is_not_the_disks_ends_the_node_and_holds_nobody_else_up() -> None:
    """Whoever waited for the one batch is not told success; the log is read anew at the start."""

    async def scenario() -> None:
        world = World(3)
        broken: list[Exception] = []
        world.commit.broken = broken.append
        for number, partition in enumerate(world.partitions):
            world.produce(partition, number)
        bad = world.partitions[1]
        bad.durable_waiters = Waiters()
        bad.durable_waiters.add(1, _fails)
        await world.settle()
        assert [str(error) for error in broken] == ["nobody expects this"]
        assert world.answers == [(0, OK), (2, OK)]
        assert [one.log.failed for one in world.partitions] == [False, True, False]
        await world.commit.take(bad)  # a stop can close it: nobody holds it
        world.commit.release(bad)
        await world.commit.drain()

    run(scenario)


def test_a_batch_that_cannot_be_planned_holds_nobody_else_up() -> None:
    """Neither those that were planned before it nor those that follow."""

    async def scenario() -> None:
        world = World(3)
        broken: list[Exception] = []
        world.commit.broken = broken.append
        for number, partition in enumerate(world.partitions):
            world.produce(partition, number)
        bad = world.partitions[1]
        bad._pending = [bad._pending[0]._replace(last_offset=-5)]
        await world.settle()
        assert [type(error) for error in broken] == [AssertionError]
        assert world.answers == [(0, OK), (2, OK)]
        assert bad.log.failed
        assert not any(one.busy for one in world.partitions)
        await world.commit.drain()

    run(scenario)


def _fails(code: ErrorCode) -> None:
    raise RuntimeError("nobody expects this")
