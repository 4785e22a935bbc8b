"""What a cleaning keeps, removes, merges and leaves byte by byte as it was."""

import errno
import gzip

import lz4.frame  # type: ignore[import-untyped]
import pytest
import snappy  # type: ignore[import-untyped]
import zstandard
from tests.storage.compaction_support import (
    HOUR_MS,
    RULES,
    Sent,
    batches_of,
    clean,
    keyed,
    pairs_of,
    planned,
    put,
    records_of,
    roll,
)
from tests.storage.support import (
    DIRECTORY,
    NOW,
    append,
    headers_of,
    joined,
    new_disk,
    open_log,
    raw_batch,
    read_all,
    record,
    run,
)

from chronik.sim.disk import SimDisk
from chronik.storage.compaction import Compaction
from chronik.storage.compaction_files import DamagedBatchError
from chronik.storage.compaction_map import ENTRY_BYTES
from chronik.storage.compaction_records import compressed
from chronik.storage.compaction_swap import discard_cleaned
from chronik.storage.log import Log
from chronik.storage.segment import LogConfig
from chronik.wire.records import CONTROL_FLAG, DELETE_HORIZON_FLAG, TRANSACTIONAL_FLAG, read_header

LARGE = LogConfig(segment_bytes=100_000, index_interval_bytes=150)


def new_log(config: LogConfig = LARGE) -> tuple[SimDisk, Log]:
    disk = new_disk()
    return disk, open_log(disk, config)[0]


def ready(log: Log, *, map_bytes_max: int = 1 << 20) -> Compaction:
    work = planned(log)
    assert work is not None
    compaction = Compaction(work, NOW, map_bytes_max=map_bytes_max)
    compaction.build_map()
    return compaction


def test_of_each_key_the_last_record_stays_at_its_offset() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(log, (b"c", b"1"), (b"b", b"2"))
    roll(log)
    clean(log)
    assert pairs_of(log) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2")]
    assert log.end_offset == 6
    first = headers_of(read_all(log))[0]
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)


def test_what_is_kept_keeps_time_headers_producer_and_epoch() -> None:
    _, log = new_log()
    sent = Sent(producer=(7, 3, 40), timestamp=NOW)
    before = put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), sent=sent)
    roll(log)
    originals = {one.offset: one for one in records_of(log)}
    clean(log)
    assert [one.offset for one in records_of(log)] == [2, 3, 4]
    assert all(one == originals[one.offset] for one in records_of(log))
    old, new = read_header(before), headers_of(read_all(log))[0]
    same = ("base_offset", "last_offset", "leader_epoch", "last_sequence", "codec", "max_timestamp")
    assert all(getattr(old, name) == getattr(new, name) for name in same)
    assert (new.producer_id, new.producer_epoch, new.base_sequence) == (7, 3, 40)


def test_the_largest_timestamp_is_that_of_the_records_that_are_left() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    put(log, (b"b", b"2"), (b"c", b"2"), sent=Sent(timestamp=NOW - 500))
    roll(log)
    clean(log)
    assert [header.max_timestamp for header in headers_of(read_all(log))[:2]] == [NOW, NOW - 499]
    found = log.offset_for_timestamp(NOW)
    assert found is not None
    assert found.offset == 0


def test_untouched_batches_are_copied_byte_by_byte() -> None:
    _, log = new_log()
    kept = [put(log, (b"a", b"1"), sent=Sent(codec=codec)) for codec in (0,)]
    put(log, (b"x", b"1"))
    kept += [
        put(log, (f"k{codec}".encode(), b"v" * 50), sent=Sent(codec=codec)) for codec in (1, 4)
    ]
    kept.append(put(log, (b"x", b"2")))
    roll(log)
    clean(log)
    assert batches_of(log)[:-1] == kept


def test_a_clean_log_is_not_rewritten() -> None:
    disk, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"1"))
    roll(log)
    renames = disk.calls["rename"]
    before = read_all(log)
    clean(log)
    assert read_all(log) == before
    assert disk.calls["rename"] == renames + 1, "only the checkpoint"
    assert planned(log) is None


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_codec_of_a_batch_stays(codec: int) -> None:
    _, log = new_log()
    pairs = [(f"k{i % 10}".encode(), f"{i}".encode() * 20) for i in range(200)]
    put(log, *pairs, sent=Sent(codec=codec))
    roll(log)
    originals = {one.offset: one for one in records_of(log)}
    clean(log)
    assert headers_of(read_all(log))[0].codec == codec
    assert [one.offset for one in records_of(log)] == [*range(190, 200), 200]
    assert all(one == originals[one.offset] for one in records_of(log))


@pytest.mark.parametrize("size", [0, 10, 65_536, 300_000])
def test_other_libraries_read_what_is_compressed(size: int) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert gzip.decompress(compressed(1, data)) == data
    assert snappy.uncompress(compressed(2, data)) == data
    assert lz4.frame.decompress(compressed(3, data)) == data
    assert lz4.frame.get_frame_info(compressed(3, data))["block_linked"] is False
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compressed(4, data)) == data


def test_records_without_a_key_are_dropped() -> None:
    _, log = new_log()
    put(log, (None, b"1"), (b"a", b"1"), (None, b"2"))
    put(log, (None, b"3"))
    put(log, (b"b", b"1"))
    roll(log)
    clean(log)
    assert pairs_of(log) == [(1, b"a", b"1"), (4, b"b", b"1")]


def test_long_keys_are_told_apart() -> None:
    _, log = new_log()
    one, two = b"k" * 500 + b"1", b"k" * 500 + b"2"
    put(log, (one, b"1"), (two, b"1"), (one, b"2"))
    roll(log)
    clean(log)
    assert pairs_of(log) == [(1, two, b"1"), (2, one, b"2")]


# Tombstones.


def test_a_tombstone_stays_until_its_delete_horizon_has_passed() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None), (b"c", b"1"))
    roll(log)
    clean(log)
    assert pairs_of(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    marked = headers_of(read_all(log))[1]
    assert marked.attributes & DELETE_HORIZON_FLAG
    assert marked.base_timestamp == NOW + HOUR_MS
    assert [one.timestamp for one in records_of(log)][1:3] == [NOW, NOW + 1]
    roll(log)
    clean(log, now_ms=NOW + HOUR_MS - 1)
    assert (2, b"a", None) in pairs_of(log)
    roll(log)
    clean(log, now_ms=NOW + HOUR_MS)
    assert pairs_of(log) == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert [one.timestamp for one in records_of(log)][1] == NOW + 1


def test_a_delete_horizon_is_set_once() -> None:
    _, log = new_log()
    put(log, (b"a", None))
    for hours in range(3):
        roll(log)
        clean(log, now_ms=NOW + hours * HOUR_MS // 4)
        assert headers_of(read_all(log))[0].base_timestamp == NOW + HOUR_MS


def test_a_tombstone_that_the_map_does_not_cover_gets_no_horizon() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"), (b"a", None))
    roll(log)
    clean(log, map_bytes_max=2 * ENTRY_BYTES)
    assert log.first_dirty_offset == 2
    assert pairs_of(log) == [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", None)]
    assert not headers_of(read_all(log))[1].attributes & DELETE_HORIZON_FLAG


# Producers, control batches, transactions.


def test_the_last_batch_of_a_producer_is_kept_without_records() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"), sent=Sent(producer=(5, 0, 0)))
    put(log, (b"a", b"2"), (b"b", b"1"), sent=Sent(producer=(5, 0, 1)))
    put(log, (b"a", b"3"), (b"b", b"2"), sent=Sent(producer=(6, 2, 9)))
    roll(log)
    clean(log, producers={5: 2, 6: 4})
    empty = headers_of(read_all(log))[0]
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (1, 2, 0)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (5, 0, 1)
    assert empty.last_sequence == 2
    assert [header.producer_id for header in log.headers(0)] == [5, 6, -1]
    roll(log)
    clean(log, producers={6: 4})
    assert [header.producer_id for header in log.headers(0)][0] == 6, "forgotten, so not kept"


def test_the_last_batch_of_a_segment_is_kept_without_records() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"))
    put(log, (None, b"no key"))
    roll(log)
    clean(log)
    assert pairs_of(log) == [(0, b"a", b"1")]
    assert log.segments[0].summary().next_offset == 2


def marker(base_offset: int, producer: tuple[int, int, int], *, commit: bool) -> bytes:
    key = bytes([0, 0, 0, 1 if commit else 0])
    return raw_batch(
        base_offset,
        record(0, 0, bytes(6), key),
        1,
        attributes=CONTROL_FLAG | TRANSACTIONAL_FLAG,
        producer=producer,
    )


@pytest.mark.parametrize("commit", [True, False])
def test_only_a_committed_record_hides_an_older_one(commit: bool) -> None:
    _, log = new_log()
    put(log, (b"a", b"old"), (b"b", b"1"))
    put(log, (b"a", b"new"), sent=Sent(producer=(9, 0, 0), attributes=TRANSACTIONAL_FLAG))
    end = marker(log.end_offset, (9, 0, -1), commit=commit)
    append(log, end)
    roll(log)
    clean(log, producers={9: 2})
    assert ((0, b"a", b"old") in pairs_of(log)) is not commit
    assert end in batches_of(log), "control batches stay as they are"


def test_an_open_transaction_stays_dirty() -> None:
    _, log = new_log()
    put(log, (b"a", b"old"))
    put(log, (b"a", b"new"), sent=Sent(producer=(9, 0, 0), attributes=TRANSACTIONAL_FLAG))
    roll(log)
    clean(log)
    assert log.first_dirty_offset == 1
    append(log, marker(log.end_offset, (9, 0, -1), commit=True))
    roll(log)
    clean(log)
    assert (0, b"a", b"old") not in pairs_of(log)


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
