"""What a follower names in its fetches, and what it leaves to the session's memory."""

from tests.broker.kit import World, run

from chronik.broker.asking import COMPARE_EVERY_S, Asking, Key
from chronik.wire.replica_fetch import ReplicaFetch

ME, EPOCH = 2, 7


def named(request: ReplicaFetch) -> list[int]:
    return sorted(one.index for partitions in request.topics.values() for one in partitions)


def forgotten(request: ReplicaFetch) -> list[int]:
    return sorted(one for indexes in request.forgotten.values() for one in indexes)


def asking(world: World) -> tuple[Asking, list[Key]]:
    made, keys = Asking(), []
    for partition in world.partitions:
        key = (partition.topic_id, partition.index)
        keys.append(key)
        made.add(key, partition)
    return made, keys


def test_only_what_moved_is_named_again() -> None:
    async def scenario() -> None:
        world = World(3)
        subject, keys = asking(world)
        assert named(subject.request(ME, EPOCH, 0.0)) == [0, 1, 2]
        subject.answered(5)
        assert named(subject.request(ME, EPOCH, 0.1)) == []
        state = world.partitions[1].state
        state.log_end = state.durable_end = 9
        assert subject.told(keys[1])[0] is world.partitions[1]
        request = subject.request(ME, EPOCH, 0.2)
        assert named(request) == [1]
        assert request.topics[keys[1][0]][0].fetch_offset == 9

    run(scenario)


def test_what_changes_here_by_itself_is_noticed_within_seconds() -> None:
    async def scenario() -> None:
        world = World(2)
        subject, _ = asking(world)
        subject.request(ME, EPOCH, 0.0)
        subject.answered(5)
        world.partitions[0].state.durable_end = 0
        world.partitions[0].state.leader_epoch = 3
        assert named(subject.request(ME, EPOCH, 0.5)) == []
        assert named(subject.request(ME, EPOCH, COMPARE_EVERY_S)) == [0]

    run(scenario)


def test_a_paused_partition_is_forgotten_and_named_again_later() -> None:
    async def scenario() -> None:
        subject, keys = asking(World(2))
        subject.request(ME, EPOCH, 0.0)
        subject.answered(5)
        subject.pause(keys[0], 0.3)
        request = subject.request(ME, EPOCH, 0.1)
        assert (named(request), forgotten(request)) == ([], [0])
        request = subject.request(ME, EPOCH, 0.2)
        assert (named(request), forgotten(request)) == ([], [])
        assert named(subject.request(ME, EPOCH, 0.4)) == [0]
        assert not subject.all_paused(0.4)

    run(scenario)


def test_a_partition_that_went_is_forgotten_and_one_that_came_back_is_not() -> None:
    async def scenario() -> None:
        world = World(2)
        subject, keys = asking(world)
        subject.request(ME, EPOCH, 0.0)
        subject.answered(5)
        for key in keys:
            subject.remove(key)
        subject.add(keys[1], world.partitions[1])
        request = subject.request(ME, EPOCH, 0.1)
        assert (named(request), forgotten(request)) == ([], [0])

    run(scenario)


def test_a_new_session_is_told_everything() -> None:
    async def scenario() -> None:
        subject, _ = asking(World(2))
        subject.request(ME, EPOCH, 0.0)
        subject.answered(5)
        subject.new_session()
        request = subject.request(ME, EPOCH, 0.1)
        assert (named(request), request.session_id, request.session_epoch) == ([0, 1], 0, 0)

    run(scenario)
