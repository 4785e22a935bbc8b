"""Recovery, one row per thing that can be found on a disk after a crash."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.storage.support import (
    DIRECTORY,
    NOW,
    SMALL,
    append,
    batch,
    fill,
    joined,
    new_disk,
    open_log,
    read_all,
    run,
)

from chronik.sim.disk import PowerCutError, SimDisk
from chronik.storage.fs import write_all
from chronik.storage.index import SegmentIndex
from chronik.storage.log import Log
from chronik.storage.operations import RECOVERY_LIMIT_FILE
from chronik.storage.recovery import RecoveryReport
from chronik.storage.segment import LogConfig

ONE_SEGMENT = LogConfig(index_interval_bytes=150)
COUNT = 30


@dataclass
class Scene:
    """A log of COUNT synced batches, closed in no particular way."""

    disk: SimDisk
    log: Log
    made: list[bytes]

    @property
    def active(self) -> str:
        return self.log.segments[-1].path

    @property
    def first(self) -> str:
        return self.log.segments[0].path

    def write(self, path: str, data: bytes, position: int) -> None:
        file = self.disk.open(path)
        write_all(self.disk, file, [data], position)
        self.disk.fdatasync(file)
        self.disk.close(file)

    def cut(self, path: str, size: int) -> None:
        file = self.disk.open(path)
        self.disk.truncate(file, size)
        self.disk.fdatasync(file)
        self.disk.close(file)

    def put(self, name: str, data: bytes = b"?") -> None:
        path = f"{DIRECTORY}/{name}"
        file = self.disk.create(path)
        write_all(self.disk, file, [data], 0)
        self.disk.close(file)

    def grow(self, data: bytes) -> None:
        self.write(self.active, data, self.disk.size(self.active))


def scene(config: LogConfig = SMALL, count: int = COUNT) -> Scene:
    disk = new_disk()
    log, _ = open_log(disk, config)
    return Scene(disk, log, fill(log, count))


@dataclass(frozen=True)
class Case:
    """What is done to the disk, and what must be left of the COUNT batches."""

    spoil: Callable[[Scene], None]
    kept: int = COUNT
    bytes_cut: int = 0
    damaged: int = 0


def next_batch(scene: Scene, ahead: int = 0) -> bytes:
    return batch(COUNT + ahead, value=b"unacknowledged")


def index_file(scene: Scene, number: int, suffix: str) -> str:
    return scene.log.segments[number].path.replace(".log", suffix)


def stale_index(scene: Scene) -> None:
    """The index of the sealed segment describes less than the file holds."""
    segment = scene.log.segments[0]
    offsets, times = SegmentIndex(segment.base_offset).encode()
    for suffix, data in ((".index", offsets), (".timeindex", times)):
        scene.cut(index_file(scene, 0, suffix), 0)
        scene.write(index_file(scene, 0, suffix), data, 0)


def checkpoint_then_grow(scene: Scene) -> None:
    run(scene.log, scene.log.checkpoint())
    scene.grow(next_batch(scene)[:-1])


def empty_new_segment(scene: Scene) -> None:
    """The crash came after a roll created the file and before anything was written."""
    run(scene.log, scene.log.checkpoint())
    scene.put(f"{COUNT:020d}.log", b"")


TORN = len(batch(COUNT, value=b"unacknowledged")) - 1

CASES = {
    "nothing happened": Case(lambda scene: None),
    "torn tail": Case(lambda scene: scene.grow(next_batch(scene)[:-1]), bytes_cut=TORN),
    "torn inside a header": Case(lambda scene: scene.grow(next_batch(scene)[:7]), bytes_cut=7),
    "zero-filled tail": Case(lambda scene: scene.grow(bytes(5000)), bytes_cut=5000),
    "zero-filled end of the last batch": Case(
        lambda scene: scene.grow(next_batch(scene)[:40] + bytes(TORN - 39)), bytes_cut=TORN + 1
    ),
    "torn tail after a checkpoint": Case(checkpoint_then_grow, bytes_cut=TORN),
    "torn middle: a hole, then a whole batch": Case(
        lambda scene: scene.grow(bytes(TORN + 1) + next_batch(scene, 1)),
        bytes_cut=2 * (TORN + 1),
        damaged=1,
    ),
    "batch with offsets already used": Case(
        lambda scene: scene.grow(batch(3, value=b"old")), bytes_cut=len(batch(3, value=b"old"))
    ),
    "old message format": Case(
        lambda scene: scene.grow(next_batch(scene)[:16] + b"\x01" + next_batch(scene)[17:]),
        bytes_cut=TORN + 1,
    ),
    "index missing": Case(lambda scene: scene.disk.unlink(index_file(scene, 0, ".index"))),
    "time index missing": Case(lambda scene: scene.disk.unlink(index_file(scene, 0, ".timeindex"))),
    "index torn": Case(lambda scene: scene.cut(index_file(scene, 0, ".index"), 80)),
    "index empty": Case(lambda scene: scene.cut(index_file(scene, 0, ".index"), 0)),
    "index header damaged": Case(
        lambda scene: scene.disk.corrupt(index_file(scene, 0, ".index"), 20)
    ),
    "index body damaged": Case(
        lambda scene: scene.disk.corrupt(index_file(scene, 0, ".index"), 75)
    ),
    "time index body damaged": Case(
        lambda scene: scene.disk.corrupt(index_file(scene, 0, ".timeindex"), 75)
    ),
    "index stale": Case(stale_index),
    "temporary files": Case(lambda scene: scene.put(f"{0:020d}.index.tmp")),
    "renamed for deletion": Case(lambda scene: scene.put(f"{0:020d}.log.deleted")),
    "index without a log": Case(lambda scene: scene.put(f"{777:020d}.index")),
    "snapshot beyond the end": Case(lambda scene: scene.put(f"{COUNT + 1:020d}.snapshot")),
    "empty new segment": Case(empty_new_segment),
    "epoch file damaged": Case(
        lambda scene: scene.disk.corrupt(f"{DIRECTORY}/leader-epoch-checkpoint", 3)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fm57_recovery_after(name: str) -> None:
    case = CASES[name]
    before = scene()
    case.spoil(before)
    log, report = open_log(before.disk, recovery_point=COUNT)
    assert read_all(log) == joined(before.made[: case.kept])
    assert log.end_offset == case.kept
    assert (report.bytes_cut, len(report.damage)) == (case.bytes_cut, case.damaged)
    assert log.epochs.entries() == [(0, 0)]
    assert_goes_on(before.disk, log)


def assert_goes_on(disk: SimDisk, log: Log) -> None:
    """Appends work, survive a power cut, and a second recovery finds nothing to do."""
    kept = read_all(log)
    more = fill(log, 15)
    assert read_all(log) == kept + joined(more)
    disk.crash(random.Random(0))
    again, report = open_log(disk, recovery_point=log.end_offset)
    assert read_all(again) == kept + joined(more)
    assert report.damage == []
    names = disk.listdir(DIRECTORY)
    assert not [name for name in names if name.endswith((".tmp", ".deleted"))]


def test_bytes_behind_a_hole_are_kept_aside_not_thrown_away() -> None:
    before = scene(ONE_SEGMENT)
    good = before.disk.size(before.active)
    tail = bytes(50) + next_batch(before, 1)
    before.grow(tail)
    log, report = open_log(before.disk, ONE_SEGMENT, recovery_point=COUNT)
    [damage] = report.damage
    assert (damage.path, damage.position, damage.offset) == (before.active, good, COUNT)
    assert before.disk.contents(damage.kept_in) == tail
    assert read_all(log) == joined(before.made)


@pytest.mark.parametrize("where", [0, 17, 30, 65], ids=["offset", "crc", "header", "payload"])
def test_a_bit_flip_below_the_recovery_point_is_reported_and_never_served(where: int) -> None:
    before = scene(ONE_SEGMENT)
    start = len(joined(before.made[:12]))
    before.disk.corrupt(before.active, start + where)
    log, report = open_log(before.disk, ONE_SEGMENT, recovery_point=COUNT, verify=True)
    [damage] = report.damage
    assert (damage.position, damage.size, damage.offset) == (start, len(before.made[12]), 12)
    assert before.disk.contents(damage.kept_in)[where] == before.made[12][where] ^ 1
    assert read_all(log) == joined(before.made[:12] + before.made[13:])
    assert log.end_offset == COUNT
    assert report.tail is None, "those before the damage are not the log's last"
    assert_goes_on(before.disk, log)


def test_a_bit_flip_in_a_sealed_segment_leaves_the_other_segments_alone() -> None:
    before = scene()
    before.disk.corrupt(before.first, 100)
    log, report = open_log(before.disk, recovery_point=COUNT, verify=True)
    assert [damage.path for damage in report.damage] == [before.first]
    assert read_all(log) == joined(before.made[:0] + before.made[1:])
    assert open_log(before.disk, recovery_point=COUNT, verify=True)[1].damage == []


def test_a_damaged_length_does_not_hide_the_batches_behind_it() -> None:
    before = scene(ONE_SEGMENT)
    start = len(joined(before.made[:5]))
    before.disk.corrupt(before.active, start + 9, 0xFF)
    log, report = open_log(before.disk, ONE_SEGMENT, recovery_point=COUNT)
    assert [damage.offset for damage in report.damage] == [5]
    assert read_all(log) == joined(before.made[:5] + before.made[6:])


def test_an_interrupted_split_is_finished() -> None:
    """The power goes at every step of keeping damaged bytes aside."""
    for steps in range(40):
        before = scene(ONE_SEGMENT, 20)
        before.disk.corrupt(before.active, len(joined(before.made[:5])) + 70)
        before.disk.power_cut_after = steps
        finished = False
        try:
            open_log(before.disk, ONE_SEGMENT, recovery_point=20, verify=True)
            finished = True
        except PowerCutError:
            pass
        before.disk.crash(random.Random(steps))
        log, _ = open_log(before.disk, ONE_SEGMENT, recovery_point=20, verify=True)
        assert read_all(log) == joined(before.made[:5] + before.made[6:])
        if finished:
            return
    pytest.fail("recovery never finished")


@pytest.mark.parametrize("ahead", ["index ahead of log", "recovery point ahead of log"])
def test_fm57_a_log_that_lost_synced_bytes_says_so(ahead: str) -> None:
    before = scene(ONE_SEGMENT)
    if ahead == "index ahead of log":
        run(before.log, before.log.checkpoint())
    before.cut(before.active, len(joined(before.made[:20])))
    log, report = open_log(before.disk, ONE_SEGMENT, 0 if "index" in ahead else COUNT)
    assert read_all(log) == joined(before.made[:20])
    [damage] = report.damage
    assert (damage.offset, damage.size) == (20, 0)
    assert_goes_on(before.disk, log)


def test_fm57_a_segment_is_reused_after_a_restart_never_overwritten() -> None:
    disk = new_disk()
    made: list[bytes] = []
    for _ in range(12):
        log, _ = open_log(disk)
        made += fill(log, 3)
        assert read_all(log) == joined(made)


def test_an_existing_file_is_never_written_over_by_a_roll() -> None:
    before = scene(ONE_SEGMENT, 3)
    before.put(f"{3:020d}.log", b"somebody's bytes")
    big = batch(3, value=b"v" * 200)
    before.log.config = LogConfig(segment_bytes=100)
    with pytest.raises(FileExistsError):
        append(before.log, big)
    assert before.disk.contents(f"{DIRECTORY}/{3:020d}.log") == b"somebody's bytes"


# FM 56.


@pytest.mark.parametrize("count", [200, 2000])
def test_fm56_recovery_reads_only_what_follows_the_last_checkpoint(count: int) -> None:
    disk = new_disk()
    config = LogConfig(segment_bytes=40_000, index_interval_bytes=4096)
    log, _ = open_log(disk, config)
    fill(log, count, value=b"v" * 200)
    run(log, log.checkpoint())
    after = fill(log, 5, value=b"v" * 200)
    disk.bytes_read = 0
    again, report = open_log(disk, config)
    assert again.end_offset == count + 5
    assert report.bytes_scanned <= len(joined(after)) + 4096
    index_bytes = 2 * 200 + 12 * (40_000 // 4096)
    sealed = 80 * len(log.segments)
    assert disk.bytes_read <= report.bytes_scanned + 2 * index_bytes + sealed + 500


def test_fm56_below_the_recovery_point_only_headers_are_read() -> None:
    disk = new_disk()
    log, _ = open_log(disk, ONE_SEGMENT)
    fill(log, 10, value=b"v" * 100_000)
    _, report = open_log(disk, ONE_SEGMENT, recovery_point=10)
    assert report.bytes_scanned <= 10 * 4096


@pytest.mark.parametrize(("torn", "expected"), [(b"", COUNT), (b"torn", -1)])
def test_the_report_says_up_to_where_the_last_checkpoint_goes(torn: bytes, expected: int) -> None:
    before = scene(ONE_SEGMENT)
    run(before.log, before.log.checkpoint())
    before.grow(torn)
    _, report = open_log(before.disk, ONE_SEGMENT)
    assert report.checkpointed_to == expected, "the index goes with what is cut"


def test_batches_of_a_sealed_segment_are_not_taken_for_the_last_ones() -> None:
    before = scene(SMALL)
    run(before.log, before.log.checkpoint())
    before.disk.unlink(before.log.segments[0].index_paths[0])
    _, report = open_log(before.disk, SMALL)
    assert report.indexes_rebuilt == [f"{0:020d}"]
    assert report.tail is None


@pytest.mark.parametrize(("point", "syncs"), [(COUNT, 0), (COUNT - 1, 1)])
def test_only_what_may_not_be_durable_is_synced_again(point: int, syncs: int) -> None:
    before = scene(ONE_SEGMENT)
    before.disk.calls.clear()
    log, _ = open_log(before.disk, ONE_SEGMENT, recovery_point=point)
    assert log.end_offset == COUNT
    assert before.disk.calls["fdatasync"] == syncs


def test_a_recovery_point_from_before_a_truncation_is_not_believed() -> None:
    before = scene(ONE_SEGMENT)
    run(before.log, before.log.truncate_to(10))
    kept = before.made[:10] + fill(before.log, 5)
    torn = batch(15, value=b"unacknowledged")
    before.grow(torn[:-3] + b"bad")
    log, report = open_log(before.disk, ONE_SEGMENT, recovery_point=COUNT)
    assert read_all(log) == joined(kept)
    assert report.damage == []


def test_a_lost_log_behind_its_own_start_begins_there() -> None:
    before = scene(ONE_SEGMENT)
    run(before.log, before.log.advance_start(20))
    before.cut(before.active, len(joined(before.made[:10])))
    log, report = open_log(before.disk, ONE_SEGMENT)
    assert (log.start_offset, log.end_offset) == (20, 20)
    assert any("before its start" in note for note in report.notes)
    made = fill(log, 2)
    again, _ = open_log(before.disk, ONE_SEGMENT)
    assert (again.start_offset, read_all(again)) == (20, joined(made))


@pytest.mark.parametrize(("point", "is_damage"), [(3, False), (5, True)])
def test_a_log_that_was_cut_in_the_batch_it_starts_in_lacks_nothing(
    point: int, is_damage: bool
) -> None:
    disk = new_disk()
    log, _ = open_log(disk, ONE_SEGMENT)
    append(log, batch(0, [NOW] * 2), batch(2, [NOW] * 3))
    run(log, log.advance_start(3))
    run(log, log.truncate_to(3))
    disk.unlink(f"{DIRECTORY}/{RECOVERY_LIMIT_FILE}")  # it is gone with the next checkpoint
    log, report = open_log(disk, ONE_SEGMENT, recovery_point=point)
    assert (log.start_offset, log.end_offset) == (3, 3)
    assert bool(report.damage) is is_damage


def test_the_report_names_what_was_done() -> None:
    before = scene()
    before.disk.unlink(index_file(before, 0, ".index"))
    before.put("junk.tmp")
    _, report = open_log(before.disk)
    assert isinstance(report, RecoveryReport)
    assert report.indexes_rebuilt == [f"{0:020d}"]
    assert report.files_swept == ["junk.tmp"]
