"""Consumers at the end of a log share one read."""

from tests.broker.kit import World, contents, run

from chronik.broker.shared_read import SharedRead
from chronik.model.limits import SHARED_READ_BYTES_MAX
from chronik.storage.segment import Read

ASKED = (5, 1000, 8, True, 0)


def read_of(data: bytearray) -> Read:
    half = len(data) // 2
    slices = [memoryview(data)[:half], memoryview(data)[half:]]
    return Read(slices, len(data), 5, 0, 0)


def test_who_asks_the_same_gets_the_same_and_nobody_else() -> None:
    shared, read = SharedRead(), read_of(bytearray(b"batches"))
    assert shared.find(ASKED) is None
    kept = shared.keep(ASKED, read)
    assert b"".join(kept.slices) == b"batches"
    assert shared.find(ASKED) == kept
    for place, other in enumerate((6, 900, 9, False, 1)):
        assert shared.find((*ASKED[:place], other, *ASKED[place + 1 :])) is None  # type: ignore[arg-type]


def test_what_a_limit_ended_is_known_to_be_a_part() -> None:
    for is_all in (True, False):
        shared, read = SharedRead(), read_of(bytearray(b"batches"))
        shared.keep(ASKED, read._replace(is_all=is_all))
        kept = shared.find(ASKED)
        assert kept is not None
        assert kept.is_all is is_all


def test_what_is_kept_holds_no_slice_of_the_file() -> None:
    """A deleted segment stays on the disk as long as somebody has a slice of it."""
    shared, data = SharedRead(), bytearray(b"batches")
    read = read_of(data)
    shared.keep(ASKED, read)
    for piece in read.slices:
        piece.release()
    data.clear()  # fails while there is a view of it
    kept = shared.find(ASKED)
    assert kept is not None
    assert b"".join(kept.slices) == b"batches"


def test_large_and_empty_reads_are_not_kept() -> None:
    shared = SharedRead()
    for data in (bytearray(), bytearray(SHARED_READ_BYTES_MAX + 1)):
        read = read_of(data)
        assert shared.keep(ASKED, read) is read
        assert shared.find(ASKED) is None


def test_a_log_that_began_anew_shows_what_it_has_now() -> None:
    async def scenario() -> None:
        world = World()
        partition = world.partitions[0]
        world.produce(partition, 1)
        await world.settle()
        before = contents(partition)
        reset = partition.log.reset_to(0)
        reset.execute()
        partition.log.apply(reset)
        partition.state.is_leader = False
        partition.state.restarted_at(0)
        partition.state.is_leader = True
        world.produce(partition, 2)
        await world.settle()
        assert [offset for offset, _ in before] == [offset for offset, _ in contents(partition)]
        assert contents(partition) != before

    run(scenario)
