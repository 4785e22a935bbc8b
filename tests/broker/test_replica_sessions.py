"""A leader's sessions with its followers: what moved is looked at, the rest costs nothing."""

import itertools
from collections.abc import Callable

import pytest
from tests.broker.kit import World, run

from chronik.broker.fetch_sessions import EPOCH_MAX, SessionError
from chronik.broker.partition import Partition
from chronik.broker.replica_sessions import ReplicaSession, ReplicaSessions
from chronik.cluster.image import PartitionState
from chronik.model.errors import ErrorCode
from chronik.wire.fetch import FetchPartition, FetchRequest

FOLLOWER = 2


class Timer:
    """Called once, when its time has come."""

    def __init__(self, at_s: float, callback: Callable[[], object]) -> None:
        self.at_s = at_s
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clockwork:
    """Timers that run when the test moves the time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.armed = 0
        self._timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[[], object], /) -> Timer:
        self.armed += 1
        self._timers.append(Timer(when, callback))
        return self._timers[-1]

    def move_to(self, now_s: float) -> None:
        self.now_s = now_s
        due = [timer for timer in self._timers if timer.at_s <= now_s]
        self._timers = [timer for timer in self._timers if timer.at_s > now_s]
        for timer in due:
            if timer.callback is not None:
                timer.callback()


class Waits:
    """A fetch that waits, and how often it was woken and answered."""

    def __init__(self, session: ReplicaSession) -> None:
        self.session = session
        self.woken = self.answered = 0

    def wake(self) -> None:
        self.woken += 1

    def answer_now(self) -> None:
        self.answered += 1
        self.session.waiting = None


def sessions() -> ReplicaSessions:
    ids = itertools.count(1)
    return ReplicaSessions(Clockwork(), lambda: next(ids))


def wanted(partition: Partition, offset: int = 0, epoch: int = 0) -> FetchPartition:
    return FetchPartition(None, partition.topic_id, partition.index, epoch, offset, -1, 0, 1000)


def fetch(
    every: ReplicaSessions,
    session: tuple[int, int],
    partitions: list[FetchPartition],
    forgotten: list[tuple[str | bytes, int]] | None = None,
    follower: int = FOLLOWER,
) -> ReplicaSession:
    session_id, epoch = session
    return every.resolve(
        FetchRequest(
            follower, 7, 500, 1, 10**6, 0, session_id, epoch, partitions, forgotten or [], "", None
        )
    )


def moved(session: ReplicaSession) -> list[int]:
    return [followed.key[1] for followed in session.moved]


def looked_at(world: World, session: ReplicaSession) -> None:
    """As the handler does with partitions that have nothing."""
    for followed in list(session.moved):
        partition = world.partitions[followed.key[1]]
        followed.watch(partition)
        followed.told(partition)
        del session.moved[followed]


def in_world(test: Callable[[World, ReplicaSessions], None], partitions: int = 3) -> None:
    async def scenario() -> None:
        test(World(partitions), sessions())

    run(scenario)


def test_a_partition_costs_nothing_until_it_moves() -> None:
    def test(world: World, every: ReplicaSessions) -> None:
        session = fetch(every, (0, 0), [wanted(one) for one in world.partitions])
        assert moved(session) == [0, 1, 2]
        looked_at(world, session)
        assert moved(fetch(every, (1, 1), [])) == []
        session.waiting = waits = Waits(session)
        world.partitions[1].wake_fetches()
        assert (waits.woken, moved(session)) == (1, [1])

    in_world(test)


def test_a_replica_that_asks_before_its_leader_knows_of_it_is_looked_at_until_it_is_counted() -> (
    None
):
    def test(world: World, every: ReplicaSessions) -> None:
        (partition,) = world.partitions
        session = fetch(every, (0, 0), [wanted(partition)])
        (followed,) = session.moved
        followed.watch(partition)
        session.done_with(followed)
        assert moved(session) == [0]
        session.waiting = waits = Waits(session)
        partition.assign(PartitionState((1, FOLLOWER), (1,), 1, 0), 1, 0)
        assert waits.woken, "also one that the session was done with"
        session.done_with(followed)
        assert moved(session) == [0], "known, but it has not asked since"
        partition.follower_fetched(FOLLOWER, 0, 0, 7, 0)
        session.done_with(followed)
        assert moved(session) == []

    in_world(test, partitions=1)


def test_what_is_named_is_looked_at_and_what_is_forgotten_never_again() -> None:
    def test(world: World, every: ReplicaSessions) -> None:
        first, second, _ = world.partitions
        session = fetch(every, (0, 0), [wanted(one) for one in world.partitions])
        looked_at(world, session)
        fetch(every, (1, 1), [wanted(first, 7)], [(second.topic_id, 1)])
        assert [one.wanted.fetch_offset for one in session.moved] == [7]
        assert len(session) == 2
        assert not second.follower_waiters
        second.wake_fetches()
        assert moved(session) == [0]

    in_world(test)


def test_a_watermark_is_news_until_it_was_told_in_this_epoch() -> None:
    def test(world: World, every: ReplicaSessions) -> None:
        (partition,) = world.partitions
        session = fetch(every, (0, 0), [wanted(partition)])
        (followed,) = session.moved
        followed.watch(partition)
        assert followed.has_news()
        followed.told(partition)
        assert not followed.has_news()
        fetch(every, (1, 1), [wanted(partition)])
        assert not followed.has_news()
        fetch(every, (1, 2), [wanted(partition, epoch=1)])
        assert followed.has_news(), "of an earlier epoch it may have had no use for it"

    in_world(test, 1)


def test_what_had_data_is_looked_at_after_the_others() -> None:
    def test(world: World, every: ReplicaSessions) -> None:
        session = fetch(every, (0, 0), [wanted(one) for one in world.partitions])
        session.served(next(iter(session.moved)))
        assert moved(session) == [1, 2, 0]

    in_world(test)


def test_a_new_session_ends_the_old_one_of_the_same_follower_only() -> None:
    def test(world: World, every: ReplicaSessions) -> None:
        named = [wanted(one) for one in world.partitions]
        old = fetch(every, (0, 0), named)
        other = fetch(every, (0, 0), named, follower=3)
        for session in (old, other):
            looked_at(world, session)
            session.waiting = Waits(session)
        waits = old.waiting
        assert isinstance(waits, Waits)
        new = fetch(every, (0, 0), named)
        assert waits.answered == 1
        assert other.waiting is not None
        assert len(world.partitions[0].follower_waiters) == 1, "the other's"
        with pytest.raises(SessionError) as error:
            fetch(every, (old.session_id, 1), [])
        assert error.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert fetch(every, (new.session_id, 1), []) is new

    in_world(test)


def test_a_wrong_epoch_is_refused_and_epochs_wrap_to_1() -> None:
    def test(world: World, every: ReplicaSessions) -> None:
        session = fetch(every, (0, 0), [wanted(world.partitions[0])])
        with pytest.raises(SessionError) as error:
            fetch(every, (1, 2), [])
        assert error.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = EPOCH_MAX
        fetch(every, (1, EPOCH_MAX), [])
        fetch(every, (1, 1), [])

    in_world(test)


def test_a_nudge_ends_the_waiting_fetch_of_its_session() -> None:
    def test(world: World, every: ReplicaSessions) -> None:
        session = fetch(every, (0, 0), [wanted(world.partitions[0])])
        every.nudge(session.session_id)  # nobody waits
        session.waiting = waits = Waits(session)
        every.nudge(session.session_id + 1)
        assert waits.answered == 0
        every.nudge(session.session_id)
        assert waits.answered == 1

    in_world(test)


def test_one_timer_serves_fetch_after_fetch() -> None:
    loop = Clockwork()
    session = ReplicaSession(FOLLOWER, 1, loop)
    first, second = Waits(session), Waits(session)
    session.wait(first, 1.5)
    loop.now_s = 1.0
    session.waiting = None  # answered with data
    session.wait(second, 1.5)
    loop.move_to(1.5)
    assert (first.answered, second.answered) == (0, 0)
    loop.move_to(2.5)
    assert (first.answered, second.answered) == (0, 1)
    assert loop.armed == 2


def test_a_watermark_is_told_soon_unless_data_took_it_along() -> None:
    loop = Clockwork()
    session = ReplicaSession(FOLLOWER, 1, loop)
    session.waiting = waits = Waits(session)
    session.tell_soon(0.01)
    session.news_told()
    loop.now_s = 0.008
    session.tell_soon(0.01)
    loop.move_to(0.01)
    assert waits.answered == 0, "of the second watermark nobody was to be told yet"
    loop.move_to(0.019)
    assert waits.answered == 1


def test_a_session_that_ends_leaves_no_timer() -> None:
    loop = Clockwork()
    session = ReplicaSession(FOLLOWER, 1, loop)
    waits = Waits(session)
    session.wait(waits, 1.5)
    session.tell_soon(0.01)
    session.close()
    loop.move_to(5.0)
    assert waits.answered == 1, "by the end of the session"
