"""Fetches in crowds leave the processor to a write, whose acknowledgement somebody waits for."""

import asyncio
from collections.abc import Callable
from typing import cast

from tests.broker.kit import HandClock, World, run, turn

from chronik.broker.turns import Turns
from chronik.model.limits import POLLS_GIVE_WAY_US

GIVE_WAY_MS = POLLS_GIVE_WAY_US // 1000


class HandLoop:
    """Its timers are due when the test says so."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.timers: list[asyncio.TimerHandle] = []

    def call_soon(self, callback: Callable[[], None]) -> asyncio.Handle:
        return self._loop.call_soon(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        assert delay == POLLS_GIVE_WAY_US / 1e6
        timer = self._loop.call_later(3600, callback)
        self.timers.append(timer)
        return timer

    def time_passes(self) -> None:
        """The last timer is due, if nobody cancelled it."""
        assert not self.timers[-1].cancelled()
        self.timers[-1]._run()


class Crowd:
    """Fetches that take longer than a turn each, and a disk that does what it is told."""

    def __init__(self, fetches: int) -> None:
        self.world = World()
        self.loop = HandLoop()
        loop = cast("asyncio.AbstractEventLoop", self.loop)
        self._clock = HandClock()
        self.turns = Turns(loop, self._clock, self.world.commit.is_urgent)
        self.world.commit.urgent_done = self.turns.go_on
        self.looked = 0
        for _ in range(fetches):
            self.turns.soon(self._look)

    def _look(self) -> None:
        self.looked += 1
        self._clock.advance(1)

    async def produce(self) -> None:
        """A commit is with the disk."""
        self.world.produce(self.world.partitions[0], 1)
        await turn()
        assert self.world.disk.jobs


def test_fm30_a_crowd_of_fetches_waits_while_the_disk_syncs() -> None:
    async def scenario() -> None:
        crowd = Crowd(100)
        await asyncio.sleep(0)
        assert crowd.looked == 1, "more than one turn's worth of them"
        await crowd.produce()
        before = crowd.looked
        for _ in range(3):
            await turn()
        assert crowd.looked == before
        crowd.world.disk.step()
        assert crowd.world.answers, "the ack comes before the next fetch"
        assert crowd.looked == before
        await asyncio.sleep(0)
        assert crowd.looked == before + 1

    run(scenario)


def test_fm30_a_crowd_has_a_turn_between_two_writes() -> None:
    """Where one commit follows another without a gap, consumers are served all the same."""

    async def scenario() -> None:
        crowd = Crowd(100)
        await asyncio.sleep(0)
        await crowd.produce()
        for _ in range(10):
            before = crowd.looked
            crowd.world.produce(crowd.world.partitions[0], 1)
            crowd.world.disk.step()
            await turn()
            assert crowd.world.disk.jobs, "the next one is under way"
            assert crowd.looked == before + 1
        await crowd.world.settle()

    run(scenario)


def test_fm30_a_crowd_does_not_wait_for_a_slow_disk() -> None:
    async def scenario() -> None:
        crowd = Crowd(100)
        await asyncio.sleep(0)
        await crowd.produce()
        await turn()
        before = crowd.looked
        await turn()
        assert crowd.looked == before
        crowd.world.clock.advance(GIVE_WAY_MS)
        crowd.loop.time_passes()
        for _ in range(5):
            await turn()
        assert crowd.looked == before + 20
        assert crowd.world.disk.jobs
        await crowd.world.settle()

    run(scenario)


def test_a_few_fetches_use_the_time_of_a_sync() -> None:
    async def scenario() -> None:
        crowd = Crowd(0)
        await crowd.produce()
        crowd.turns.soon(crowd._look)
        await turn()
        assert crowd.looked == 1
        await crowd.world.settle()

    run(scenario)


def test_a_write_is_urgent_until_it_is_done_or_takes_long() -> None:
    async def scenario() -> None:
        crowd = Crowd(0)
        commit = crowd.world.commit
        assert not commit.is_urgent()
        crowd.world.produce(crowd.world.partitions[0], 1)
        assert commit.is_urgent(), "it is due"
        await turn()
        assert commit.is_urgent(), "it is with the disk"
        crowd.world.clock.advance(GIVE_WAY_MS)
        assert not commit.is_urgent(), "a slow disk"
        crowd.world.disk.step()
        await crowd.produce()
        assert commit.is_urgent()
        crowd.world.disk.step()
        assert not commit.is_urgent()

    run(scenario)


def test_fm30_a_write_without_a_sync_lets_the_crowd_go_on_at_once() -> None:
    async def scenario() -> None:
        crowd = Crowd(100)
        unsynced = crowd.world.new_partition(1, sync=False)
        unsynced.make_directory()
        crowd.world.produce(unsynced, 1)
        await crowd.world.settle()
        await asyncio.sleep(0)
        before = crowd.looked
        crowd.world.produce(unsynced, 2)
        await turn()
        assert crowd.looked > before, "without waiting for the timer"
        assert len(crowd.world.answers) == 2

    run(scenario)
