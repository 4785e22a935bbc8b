"""When a log is cleaned and how far, how its segments change places, and what the disk may do."""

import errno

import pytest
from tests.storage.compaction_support import (
    HOUR_MS,
    LARGE,
    RULES,
    Sent,
    clean,
    keyed,
    new_log,
    pairs_of,
    planned,
    put,
    ready,
    records_of,
    roll,
)
from tests.storage.support import (
    DIRECTORY,
    NOW,
    append,
    headers_of,
    joined,
    open_log,
    read_all,
    run,
)

from chronik.storage.compaction_files import DamagedBatchError
from chronik.storage.compaction_map import ENTRY_BYTES
from chronik.storage.compaction_swap import SWAP_SUFFIX, discard_cleaned
from chronik.storage.segment import LogConfig

# When, and how far.


def test_the_active_segment_and_what_is_not_committed_are_never_cleaned() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    assert planned(log) is None
    roll(log)
    roll(log)
    work = planned(log, high_watermark=2)
    assert work is not None
    assert work.end_offset == 2
    assert planned(log, high_watermark=1) is None


def test_young_segments_are_left_alone() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"), sent=Sent(timestamp=NOW - 5000))
    roll(log)  # its record is of NOW
    roll(log)
    rules = RULES._replace(lag_ms_min=1000)
    work = planned(log, rules)
    assert work is not None
    assert work.end_offset == 1
    work = planned(log, rules, now_ms=NOW + 1000)
    assert work is not None
    assert work.end_offset == 2


def test_the_dirty_ratio_decides_unless_a_record_waits_too_long() -> None:
    _, log = new_log()
    put(log, *[(f"{i}".encode(), b"v") for i in range(30)])
    roll(log)
    clean(log)
    roll(log)
    half = RULES._replace(dirty_ratio_min=0.5)
    work = planned(log, half)
    assert work is not None
    assert 0 < work.dirty_ratio < 0.5
    assert not work.is_due
    late = planned(log, half._replace(lag_ms_max=1000), now_ms=NOW + 1001)
    assert late is not None
    assert late.is_due
    soon = planned(log, half._replace(lag_ms_max=1000), now_ms=NOW + 1000)
    assert soon is not None
    assert not soon.is_due
    always = planned(log, RULES)
    assert always is not None
    assert always.is_due


def test_what_does_not_fit_into_the_map_is_cleaned_later() -> None:
    _, log = new_log()
    for value in (b"1", b"2"):
        put(log, *[(f"{i}".encode(), value) for i in range(5)])
    roll(log)
    assert clean(log, map_bytes_max=3 * ENTRY_BYTES) is not None
    assert log.first_dirty_offset == 3
    assert len(pairs_of(log)) == 10
    while clean(log, map_bytes_max=3 * ENTRY_BYTES) is not None:
        pass
    assert pairs_of(log) == [(5 + i, f"{i}".encode(), b"2") for i in range(5)]


def test_the_checkpoint_outlives_a_restart_but_not_a_cut() -> None:
    disk, log = new_log()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    clean(log)
    log = open_log(disk, LARGE)[0]
    assert log.first_dirty_offset == 2
    assert planned(log) is None
    run(log, log.truncate_to(1))
    assert log.first_dirty_offset <= 1
    assert open_log(disk, LARGE)[0].first_dirty_offset == 0


# Segments.


def test_adjacent_small_segments_become_one() -> None:
    disk, log = new_log(LogConfig(segment_bytes=400, index_interval_bytes=150))
    for i in range(40):
        put(log, (b"key%d" % (i % 4), b"v" * 60))
    roll(log)
    many = len(log.segments)
    before = log.read(0, 10_000, log.end_offset, at_least_one_batch=True)
    held = joined(bytes(one) for one in before.slices)
    clean(log)
    clean(log, now_ms=NOW + 1)
    roll(log)
    clean(log)
    assert len(log.segments) < many / 2
    assert [offset for offset, _, _ in pairs_of(log)] == [36, 37, 38, 39]
    assert joined(bytes(one) for one in before.slices) == held, "slices of old segments live on"
    assert log.size == sum(segment.size for segment in log.segments)
    served = read_all(log)
    log, report = open_log(disk, LARGE, verify=True)
    assert not report.damage
    assert read_all(log) == served


def test_every_offset_can_be_asked_for_after_a_cleaning() -> None:
    _, log = new_log(LogConfig(segment_bytes=400, index_interval_bytes=150))
    for i in range(60):
        put(log, (b"key%d" % (i % 7), b"v" * 60))
    roll(log)
    clean(log)
    left = [one.offset for one in records_of(log)]
    for offset in range(log.end_offset):
        found = log.read(offset, 1, log.end_offset, at_least_one_batch=True)
        header = headers_of(joined(bytes(one) for one in found.slices))[0]
        expected = next(one for one in left if one >= offset)
        assert header.last_offset >= offset
        assert header.base_offset <= expected


def test_the_log_takes_appends_while_a_cleaning_runs() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    compaction = ready(log)
    put(log, (b"a", b"3"))
    (group,) = compaction.groups()
    cleaned = compaction.rewrite(group, last=True)
    roll(log)
    put(log, (b"b", b"1"))
    run(log, log.swap(cleaned))
    assert [offset for offset, _, _ in pairs_of(log)] == [1, 3, 5]


def test_old_segments_are_read_until_the_new_one_is_applied() -> None:
    _, log = new_log(LogConfig(segment_bytes=200, index_interval_bytes=50))
    for i in range(12):
        put(log, (b"a", b"%d" % i * 30))
    roll(log)
    compaction = ready(log)
    before = read_all(log)
    log.storage.files.close()
    for group in compaction.groups():
        swap = log.swap(compaction.rewrite(group, last=False))
        assert swap is not None
        swap.execute()
        between = read_all(log)
        assert before.endswith(between[-200:])
        assert [h.base_offset for h in headers_of(between)] == [
            h.base_offset for h in log.headers(0)
        ]
        log.apply(swap)
    assert [offset for offset, _, _ in pairs_of(log)] == [11]


def test_a_cleaning_is_dropped_when_retention_took_a_segment() -> None:
    disk, log = new_log()
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    compaction = ready(log)
    (group,) = compaction.groups()
    cleaned = compaction.rewrite(group, last=True)
    run(log, log.expire(NOW + HOUR_MS, 1, -1, 2))
    assert log.swap(cleaned) is None
    discard_cleaned(disk, DIRECTORY, cleaned)
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".cleaned")]
    assert log.start_offset == 2


def test_a_cleaning_is_dropped_when_the_log_was_cut() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    compaction = ready(log)
    (group,) = compaction.groups()
    cleaned = compaction.rewrite(group, last=True)
    run(log, log.truncate_to(1))
    append(log, keyed(1, [(b"b", b"2")]))
    roll(log)
    assert log.swap(cleaned) is None
    assert pairs_of(log) == [(0, b"a", b"1"), (1, b"b", b"2")]


def test_retention_still_deletes_cleaned_segments() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"2"))
    roll(log)
    clean(log)
    run(log, log.expire(NOW + HOUR_MS, 1, -1, 2))
    assert pairs_of(log) == []
    assert log.start_offset == 2


# What the disk does.


def test_an_old_index_is_not_taken_for_that_of_a_new_segment_of_the_same_size() -> None:
    disk, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"1"))
    roll(log)
    path = log.segments[0].path
    file = disk.create(path + SWAP_SUFFIX)
    later = keyed(0, [(b"a", b"1"), (b"b", b"1")], Sent(timestamp=NOW + 77))
    disk.pwritev(file, [later], 0)
    disk.close(file)
    assert len(later) == log.segments[0].size
    log, report = open_log(disk, LARGE)
    assert report.files_swept
    assert log.segments[0].summary().max_timestamp == NOW + 78


def test_a_damaged_batch_is_not_laundered() -> None:
    disk, log = new_log()
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    disk.corrupt(log.segments[0].path, 70)
    with pytest.raises(DamagedBatchError, match="offset 0"):
        ready(log)


def test_fm63_a_full_disk_ends_the_cleaning_and_nothing_else() -> None:
    disk, log = new_log()
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    compaction = ready(log)
    before = read_all(log)
    disk.fail("pwritev", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        compaction.rewrite(compaction.groups()[0], last=True)
    assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".cleaned")]
    assert read_all(log) == before
    put(log, (b"b", b"1"))
    clean(log)
    assert pairs_of(log) == [(1, b"a", b"2"), (3, b"b", b"1")]


@pytest.mark.parametrize("after", range(25))
def test_a_failing_call_leaves_the_old_log_or_the_new_one(after: int) -> None:
    disk, log = new_log(LogConfig(segment_bytes=250, index_interval_bytes=50))
    for i in range(8):
        put(log, (b"a", b"1" * 60), (b"b%d" % i, b"2"))
    roll(log)
    log.config = LARGE
    expected = {(15, b"b7", b"2"), (14, b"a", b"1" * 60)}
    disk.fail(None, errno.EIO, after=after)
    try:
        clean(log)
    except OSError:
        disk.heal()
        if log.failed:
            log.storage.files.close()
            log = open_log(disk, LARGE, log.synced_offset)[0]
    disk.heal()
    assert expected <= set(pairs_of(log))
    put(log, (b"c", b"1"))
    clean(log)
    assert expected <= set(pairs_of(log))
    assert len(pairs_of(log)) == 10
