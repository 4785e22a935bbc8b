"""The log in ordinary times: appends, rolls, reads, time lookups, retention, truncation."""

import errno
import random
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.support import (
    CODECS,
    DIRECTORY,
    NOW,
    SMALL,
    append,
    appendable,
    batch,
    fill,
    joined,
    new_disk,
    offsets_of,
    open_log,
    read_all,
    run,
)

from chronik.sim.disk import SimDisk
from chronik.storage.append import Appendable
from chronik.storage.errors import LogFailedError, OffsetOutOfRangeError
from chronik.storage.fs import IOV_MAX, RealFileSystem
from chronik.storage.log import Log
from chronik.storage.open_files import REMAP_BYTES, OpenFiles
from chronik.storage.operations import Truncation
from chronik.storage.recovery import recover
from chronik.storage.segment import LogConfig, Storage
from chronik.wire.records import scan

BIG = LogConfig()
DAY_MS = 24 * 3600 * 1000


def new_log(config: LogConfig = SMALL) -> tuple[SimDisk, Log]:
    disk = new_disk()
    return disk, open_log(disk, config)[0]


def read(log: Log, offset: int, max_bytes: int = 10_000, end: int | None = None) -> bytes:
    end = log.end_offset if end is None else end
    return joined(
        bytes(part) for part in log.read(offset, max_bytes, end, at_least_one_batch=True).slices
    )


def test_fm51_all_batches_of_a_segment_are_read() -> None:
    _, log = new_log(BIG)
    made = fill(log, 40)
    assert len(log.segments) == 1
    assert read(log, 0) == joined(made)


def test_fm53_the_active_segment_is_on_disk_and_readable_at_once() -> None:
    disk, log = new_log(BIG)
    [made] = fill(log, 1)
    assert read(log, 0) == made
    assert disk.contents(f"{DIRECTORY}/{0:020d}.log") == made
    disk.crash(random.Random(1))
    assert read_all(open_log(disk)[0]) == made


@settings(max_examples=40)
@given(
    sizes=st.lists(st.lists(st.integers(1, 400), min_size=1, max_size=4), min_size=1, max_size=15),
    segment_bytes=st.integers(200, 3000),
    max_bytes=st.integers(0, 1500),
)
def test_fm54_what_was_written_is_read_back(
    sizes: list[list[int]], segment_bytes: int, max_bytes: int
) -> None:
    _, log = new_log(LogConfig(segment_bytes=segment_bytes, index_interval_bytes=200))
    made: list[bytes] = []
    for write in sizes:
        start = log.end_offset
        batches = [batch(start + i, value=b"v" * size) for i, size in enumerate(write)]
        append(log, *batches, sync=False)
        made += batches
    assert read_all(log, max_bytes=max_bytes) == joined(made)
    assert log.size == len(joined(made))


def test_a_fetch_inside_a_batch_returns_the_batch_that_contains_the_offset() -> None:
    _, log = new_log(BIG)
    first, second = batch(0, [NOW] * 5), batch(5, [NOW] * 5)
    append(log, first, second)
    assert read(log, 3) == first + second
    assert read(log, 7) == second


def test_nothing_at_or_beyond_the_end_offset_is_served() -> None:
    _, log = new_log()
    made = fill(log, 20)
    for end in range(21):
        assert read_all(log, end) == joined(made[:end])


def test_a_batch_that_straddles_the_end_offset_is_not_served() -> None:
    _, log = new_log(BIG)
    append(log, batch(0), batch(1, [NOW] * 4))
    assert offsets_of(read(log, 0, end=3)) == [0]
    assert read(log, 1, end=3) == b""


def test_the_first_batch_is_whole_if_asked_and_the_last_may_be_partial() -> None:
    _, log = new_log(BIG)
    made = fill(log, 3)
    assert read(log, 0, max_bytes=10) == made[0]
    assert read(log, 0, max_bytes=len(made[0]) + 7) == made[0] + made[1][:7]
    partial = log.read(0, 10, 3, at_least_one_batch=False)
    assert joined(map(bytes, partial.slices)) == made[0][:10]
    assert log.read(0, 0, 3, at_least_one_batch=False).slices == []


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(0, 11),
    st.integers(0, 3000),
    st.booleans(),
    st.booleans(),
)
def test_a_read_of_whole_batches_has_all_that_fit_and_no_part_of_another(
    counts: list[int], first: int, max_bytes: int, at_least_one: bool, sealed: bool
) -> None:
    _, log = new_log(LogConfig(segment_bytes=100_000, index_interval_bytes=1))
    made = fill_counts(log, counts)
    if sealed:
        log.segments[0].seal()
    first = min(first, len(made) - 1)
    expected = made[first : first + 1] if at_least_one else []
    for upto in range(first + 1, len(made) + 1):
        if sum(map(len, made[first:upto])) <= max_bytes:
            expected = made[first:upto]
    offset = sum(counts[:first])
    found = log.read(offset, max_bytes, log.end_offset, at_least_one_batch=at_least_one, whole=True)
    assert joined(map(bytes, found.slices)) == b"".join(expected)
    assert found.size == sum(map(len, expected))


def fill_counts(log: Log, counts: list[int]) -> list[bytes]:
    """One batch of so many records after the other."""
    made = []
    for count in counts:
        made.append(bytes(batch(log.end_offset, [NOW] * count)))
        append(log, made[-1])
    return made


def test_whole_batches_closer_than_the_index_knows_may_be_cut_but_never_before_its_last_entry() -> (
    None
):
    _, log = new_log(LogConfig(segment_bytes=100_000, index_interval_bytes=1000))
    made = b"".join(fill_counts(log, [1] * 100))
    for max_bytes in range(100, 3000, 77):
        found = log.read(0, max_bytes, log.end_offset, at_least_one_batch=False, whole=True)
        assert joined(map(bytes, found.slices)) == made[: found.size]
        assert max(0, max_bytes - 1200) < found.size <= max_bytes


def test_offsets_outside_the_log_are_refused_and_the_end_reads_empty() -> None:
    _, log = new_log()
    fill(log, 3)
    assert log.read(3, 100, 3, at_least_one_batch=True).slices == []
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100, 4, at_least_one_batch=True)


def test_a_buffer_of_several_batches_is_indexed_batch_by_batch() -> None:
    _, log = new_log(LogConfig(index_interval_bytes=100))
    made = [batch(i, epoch=i // 10) for i in range(30)]
    append(log, joined(made))
    assert len(log.segments[0].loaded_index().offsets) > 10
    assert read(log, 17) == joined(made[17:])
    assert log.epochs.entries() == [(0, 0), (1, 10), (2, 20)]


def test_more_buffers_than_one_system_call_takes_are_all_written() -> None:
    disk, log = new_log(BIG)
    made = [batch(i) for i in range(IOV_MAX + 10)]
    append(log, *made)
    assert disk.calls["pwritev"] == 2
    assert read_all(log, max_bytes=100_000) == joined(made)


@pytest.mark.parametrize(
    ("config", "batches", "bases"),
    [
        pytest.param(
            LogConfig(segment_bytes=150), [batch(0), batch(1), batch(2)], [0, 2], id="size"
        ),
        pytest.param(LogConfig(segment_ms=10), [batch(0), batch(1, [NOW + 11])], [0, 1], id="time"),
        pytest.param(
            LogConfig(index_bytes_max=24, index_interval_bytes=1),
            [batch(i, [NOW + i]) for i in range(4)],
            [0, 3],
            id="index full",
        ),
        pytest.param(BIG, [batch(0), batch(2**31)], [0, 2**31], id="relative offset"),
        pytest.param(
            LogConfig(segment_bytes=100), [batch(0, value=b"v" * 500)], [0], id="batch too large"
        ),
    ],
)
def test_a_segment_is_rolled_by(config: LogConfig, batches: list[bytes], bases: list[int]) -> None:
    disk, log = new_log(config)
    for data in batches:
        append(log, data)
    assert [segment.base_offset for segment in log.segments] == bases
    assert read_all(log) == joined(batches)
    assert read_all(open_log(disk, config)[0]) == joined(batches)


def test_one_write_may_fill_several_segments() -> None:
    disk, log = new_log()
    made = [batch(i, value=b"v" * 100) for i in range(30)]
    append(log, *made)
    assert len(log.segments) > 3
    disk.crash(random.Random(3))
    assert read_all(open_log(disk)[0]) == joined(made)


def test_reads_span_map_and_tail_of_the_active_segment() -> None:
    _, log = new_log(BIG)
    made = fill(log, 3, value=b"v" * (REMAP_BYTES // 2))
    assert read(log, 0, 3 * REMAP_BYTES) == joined(made)
    made += fill(log, 2)
    found = log.read(0, 3 * REMAP_BYTES, 5, at_least_one_batch=True)
    assert len(found.slices) == 2, "mapped, then copied"
    assert joined(map(bytes, found.slices)) == joined(made)


# Disk full and other failures (FM 63).


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("calls_that_work", range(9))
def test_a_failed_write_leaves_no_trace_and_the_next_one_works(
    error: int, calls_that_work: int
) -> None:
    disk, log = new_log()
    made = fill(log, 6)
    batches = [batch(6 + i, value=b"w" * 300) for i in range(4)]
    disk.fail(None, error, after=calls_that_work)
    with pytest.raises(OSError, match=r".") as caught:
        append(log, *batches)
    assert caught.value.errno == error
    assert read_all(log) == joined(made)
    made += fill(log, 6)
    assert read_all(log) == joined(made)
    disk.crash(random.Random(calls_that_work))
    assert read_all(open_log(disk)[0]) == joined(made)


def test_fm63_a_full_disk_loses_nothing_and_works_when_space_returns() -> None:
    disk, log = new_log(BIG)
    made = fill(log, 10)
    disk.capacity_bytes = disk.used_bytes + 40
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            fill(log, 1)
    assert read_all(log) == joined(made)
    disk.capacity_bytes = None
    made += fill(log, 5)
    assert read_all(log) == joined(made)
    disk.crash(random.Random(5))
    assert read_all(open_log(disk)[0]) == joined(made)


def test_after_a_failed_sync_of_applied_bytes_the_log_must_be_opened_again() -> None:
    disk, log = new_log(BIG)
    fill(log, 1, sync=False)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        fill(log, 1)
    with pytest.raises(LogFailedError):
        fill(log, 1)


# Time.


@pytest.mark.parametrize("codec", CODECS)
def test_time_lookups_find_the_record_inside_compressed_batches(codec: int) -> None:
    _, log = new_log(LogConfig(segment_bytes=2000, index_interval_bytes=100))
    for i in range(40):
        times = [NOW + i * 100 + j * 10 for j in range(10)]
        append(log, batch(log.end_offset, times, codec=codec, epoch=3))
    assert len(log.segments) > 1
    for wanted in (0, 5, 17, 123, 399):
        found = log.offset_for_timestamp(NOW + wanted * 10)
        assert found == (NOW + wanted * 10, wanted, 3)
    assert log.offset_for_timestamp(NOW + 11) == (NOW + 20, 2, 3)
    assert log.offset_for_timestamp(NOW - DAY_MS) == (NOW, 0, 3)
    assert log.offset_for_timestamp(NOW + DAY_MS) is None
    assert log.max_timestamp() == (NOW + 3990, 399, 3)


@settings(max_examples=40)
@given(
    times=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=3), min_size=1, max_size=30),
    start=st.integers(0, 30),
    wanted=st.integers(0, 55),
)
def test_time_lookups_agree_with_a_walk_over_all_records(
    times: list[list[int]], start: int, wanted: int
) -> None:
    _, log = new_log(LogConfig(segment_bytes=900, index_interval_bytes=100))
    records: list[tuple[int, int]] = []
    for batch_times in times:
        records += [(time, log.end_offset + i) for i, time in enumerate(batch_times)]
        append(log, batch(log.end_offset, batch_times), sync=False)
    if 0 < start <= log.end_offset:
        run(log, log.advance_start(start))
    left = [entry for entry in records if entry[1] >= log.start_offset]
    first = next((entry for entry in left if entry[0] >= wanted), None)
    found = log.offset_for_timestamp(wanted)
    assert (found and found[:2]) == first
    youngest = max((time for time, _ in left), default=None)
    largest = log.max_timestamp()
    assert (largest and largest[:2]) == next(
        (entry for entry in left if entry[0] == youngest), None
    )


def test_append_time_stands_for_every_record() -> None:
    _, log = new_log(BIG)
    append(log, batch(0, [NOW, NOW + 5, NOW + 9], attributes=0x08))
    assert log.offset_for_timestamp(NOW + 7) == (NOW + 9, 0, 0)


# Retention and DeleteRecords.


def test_segments_expire_by_time_oldest_first_and_not_above_the_high_watermark() -> None:
    disk, log = new_log()
    made = fill(log, 40)
    first, edge = (log.segments[number].base_offset for number in (1, 2))
    assert log.expire(NOW + first - 1 + 1000, 1000, -1, log.end_offset) is None, "still young"
    assert log.expire(NOW + 10**6, 1000, -1, first - 1) is None, "above the high watermark"
    run(log, log.expire(NOW + 10**6, 1000, -1, edge))
    assert log.start_offset == edge
    assert read_all(log) == joined(made[edge:])
    assert read_all(open_log(disk)[0]) == joined(made[edge:])


def test_segments_expire_by_size() -> None:
    disk, log = new_log()
    fill(log, 40)
    before = log.size
    run(log, log.expire(NOW, -1, 2000, log.end_offset))
    assert 2000 <= log.size < min(before, 3000)
    assert log.size == sum(disk.size(segment.path) for segment in log.segments)
    assert log.expire(NOW, -1, 2000, log.end_offset) is None


def test_an_expired_active_segment_goes_too() -> None:
    disk, log = new_log(BIG)
    fill(log, 5)
    run(log, log.expire(NOW + DAY_MS, 1000, -1, 5))
    assert (log.start_offset, log.end_offset, log.size) == (5, 5, 0)
    again = open_log(disk)[0]
    assert (again.start_offset, again.end_offset) == (5, 5)
    made = fill(again, 2)
    assert read_all(again) == joined(made)
    assert again.expire(NOW, 1000, -1, again.end_offset) is None


def test_a_segment_that_is_deleted_while_it_is_read_stays_readable(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = str(tmp_path_factory.mktemp("orders-0"))
    log, _ = recover(Storage(RealFileSystem()), directory, SMALL)
    made = fill(log, 40)
    held = log.read(0, 500, log.end_offset, at_least_one_batch=True)
    run(log, log.expire(NOW, -1, 0, log.end_offset))
    assert log.start_offset == log.end_offset
    assert joined(map(bytes, held.slices)) == joined(made)[:500]


def test_a_failed_deletion_gives_the_segments_back() -> None:
    disk, log = new_log(BIG)
    made = fill(log, 5)
    disk.fail("rename", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        run(log, log.expire(NOW + DAY_MS, 1000, -1, 5))
    assert read_all(log) == joined(made)
    made += fill(log, 3)
    assert read_all(log) == joined(made)
    run(log, log.expire(NOW + DAY_MS, 1000, -1, 8))
    assert log.start_offset == 8


def test_fm27_the_log_start_survives_everything() -> None:
    disk, log = new_log()
    made = fill(log, 30)
    run(log, log.advance_start(17))
    with pytest.raises(OffsetOutOfRangeError):
        log.read(16, 100, 30, at_least_one_batch=True)
    for seed in range(5):
        disk.crash(random.Random(seed))
        log, _ = open_log(disk)
        assert log.start_offset == 17
        assert read(log, 17)[:40] == made[17][:40]
    assert log.expire(NOW, -1, -1, log.end_offset) is None, "recovery let go of what lay before"
    made += fill(log, 20)
    run(log, log.truncate_to(25))
    run(log, log.checkpoint(closing=True))
    log, _ = open_log(disk)
    assert log.start_offset == 17
    assert log.advance_start(3) is None
    with pytest.raises(OffsetOutOfRangeError):
        log.advance_start(26)


# Followers.


@settings(max_examples=40)
@given(target=st.integers(0, 30), more=st.integers(0, 12), data=st.data())
def test_a_truncated_log_goes_on_as_if_the_rest_had_never_been(
    target: int, more: int, data: st.DataObject
) -> None:
    disk, log = new_log()
    made = fill(log, 30, value=b"x" * data.draw(st.integers(1, 200)))
    run(log, log.truncate_to(target))
    assert log.end_offset == target
    made = made[:target] + fill(log, more, value=b"other")
    assert read_all(log) == joined(made)
    for segment in log.segments:
        assert segment.loaded_index().log_size == segment.size
    disk.crash(random.Random(target))
    assert read_all(open_log(disk, recovery_point=30)[0]) == joined(made)


def test_truncation_inside_a_batch_cuts_the_whole_batch() -> None:
    _, log = new_log(BIG)
    append(log, batch(0), batch(1, [NOW] * 5))
    run(log, log.truncate_to(3))
    assert log.end_offset == 1


def test_truncation_keeps_the_bytes_that_are_being_sent(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = str(tmp_path_factory.mktemp("orders-0"))
    log, _ = recover(Storage(RealFileSystem()), directory, BIG)
    made = fill(log, 2, value=b"x" * REMAP_BYTES)
    held = log.read(0, 3 * REMAP_BYTES, 2, at_least_one_batch=True)
    truncation = log.truncate_to(1)
    assert isinstance(truncation, Truncation)
    assert truncation.copy
    run(log, truncation)
    made_again = made[:1] + fill(log, 1)
    assert joined(map(bytes, held.slices)) == joined(made)
    assert read_all(log, max_bytes=3 * REMAP_BYTES) == joined(made_again)


def test_a_follower_too_far_behind_begins_anew() -> None:
    disk, log = new_log()
    fill(log, 20)
    run(log, log.advance_start(15))
    run(log, log.reset_to(1000))
    assert (log.start_offset, log.end_offset, log.size) == (1000, 1000, 0)
    made = fill(log, 3)
    disk.crash(random.Random(2))
    again, _ = open_log(disk, recovery_point=20)
    assert (again.start_offset, read_all(again)) == (1000, joined(made))
    run(again, again.truncate_to(4))
    assert (again.start_offset, again.end_offset) == (4, 4)


def test_leader_epochs_answer_where_an_epoch_ended() -> None:
    disk, log = new_log()
    append(log, batch(0, epoch=2), batch(1, epoch=2), batch(2, epoch=5))
    log.epochs.assign(7, log.end_offset)
    expected = {1: (1, 0), 2: (2, 2), 3: (2, 2), 5: (5, 3), 7: (7, 3), 8: (-1, -1), -1: (-1, -1)}
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in expected} == expected
    again, _ = open_log(disk)
    assert again.epochs.entries() == [(2, 0), (5, 2)]
    run(again, again.truncate_to(2))
    assert again.epochs.entries() == [(2, 0)]
    assert open_log(disk)[0].epochs.entries() == [(2, 0)]


def test_fm32_a_follower_is_cut_where_the_logs_part_and_not_before() -> None:
    _, log = new_log()
    append(log, batch(0, epoch=2), batch(1, epoch=2), batch(2, epoch=5))
    assert log.divergence(-1, 0) is None
    assert log.divergence(5, 3) is None
    assert log.divergence(2, 1) is None
    assert log.divergence(5, 4) == (5, 3)
    assert log.divergence(2, 3) == (2, 2)
    assert log.divergence(4, 3) == (2, 2)
    # No record of epoch 6 came here: all that the follower has from before it may be committed.
    assert log.divergence(6, 4) == (5, 3)
    assert log.divergence(6, 3) == (5, 3)
    assert new_log()[1].divergence(6, 4) == (0, 0)


# Many logs.


def test_open_files_are_bounded_and_closed_in_order_of_use() -> None:
    disk = new_disk()
    files = OpenFiles(disk, capacity=6)
    log, _ = recover(Storage(disk, files), DIRECTORY, SMALL)
    made = fill(log, 100)
    assert len(log.segments) > 10
    for _ in range(2):
        assert read_all(log) == joined(made)
        assert files.descriptors <= 6
    files.close()
    assert disk.open_handles == 0


class _Counted(OrderedDict[str, Any]):
    """Counts how many entries are looked at."""

    looked = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.looked += 1
            yield key

    def items(self) -> Any:
        for key in self:
            yield key, self[key]


def test_making_room_for_a_file_looks_only_at_the_oldest_ones() -> None:
    disk = new_disk()
    files = OpenFiles(disk, capacity=100)
    files._entries = counted = _Counted()
    first = files.pinned(f"{DIRECTORY}/first", create=True)
    for number in range(300):
        with files.pinned(f"{DIRECTORY}/{number}", create=True):
            pass
    assert files.descriptors == 100
    with first:
        assert counted.looked <= 2 * 300, "the pinned one, and the one that goes"


def test_fm60_an_idle_log_costs_no_descriptor_and_few_system_calls() -> None:
    disk, log = new_log()
    fill(log, 3)
    run(log, log.checkpoint(closing=True))
    disk.calls.clear()
    before = disk.bytes_read
    again, report = open_log(disk)
    assert again.end_offset == 3
    assert disk.open_handles == 0
    assert sum(disk.calls.values()) <= 16
    assert disk.bytes_read - before < 400
    assert report.bytes_scanned == 0


def test_a_write_is_one_system_call_and_one_sync() -> None:
    disk, log = new_log(BIG)
    fill(log, 1)
    disk.calls.clear()
    append(log, *[batch(i) for i in range(1, 100)])
    assert dict(disk.calls) == {"pwritev": 1, "fdatasync": 1}


def test_only_whole_batches_are_taken() -> None:
    _, log = new_log()
    data = batch(0)
    with pytest.raises(AssertionError):
        log.prepare([Appendable(memoryview(data)[:-1], 0, 0, NOW, 0, len(data) - 1)], NOW)


def test_positions_say_where_the_bytes_came_from() -> None:
    _, log = new_log(BIG)
    made = fill(log, 3)
    found = log.read(1, 10_000, 3, at_least_one_batch=True)
    assert (found.position, found.base_offset, found.segment_base_offset) == (len(made[0]), 1, 0)
    assert [position for position, _ in scan(joined(made))][1] == found.position
    assert appendable(made[1]).base_offset == 1


@pytest.mark.parametrize("emptied_by", ["reset", "truncation", "restart"])
def test_a_log_that_begins_inside_a_batch_takes_the_whole_batch(emptied_by: str) -> None:
    disk, log = new_log(BIG)
    append(log, batch(0, [NOW] * 5), batch(5, [NOW] * 5))
    run(log, log.advance_start(7))
    run(log, log.reset_to(7) if emptied_by == "reset" else log.truncate_to(8))
    if emptied_by == "restart":
        log, _ = open_log(disk, BIG)
    assert (log.start_offset, log.end_offset) == (7, 7)
    whole = batch(5, [NOW] * 5, value=b"again")
    append(log, whole)
    assert (log.start_offset, log.end_offset, read_all(log)) == (7, 10, whole)
    again, _ = open_log(disk, BIG)
    assert (again.start_offset, read_all(again)) == (7, whole)
