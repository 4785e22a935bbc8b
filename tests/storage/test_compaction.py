"""What a cleaning keeps, removes and leaves byte by byte as it was."""

import gzip

import lz4.frame  # type: ignore[import-untyped]
import pytest
import snappy  # type: ignore[import-untyped]
import zstandard
from tests.storage.compaction_support import (
    HOUR_MS,
    Sent,
    batches_of,
    clean,
    new_log,
    pairs_of,
    planned,
    put,
    records_of,
    roll,
)
from tests.storage.support import (
    NOW,
    append,
    headers_of,
    raw_batch,
    read_all,
    record,
)

from chronik.storage.compaction_map import ENTRY_BYTES
from chronik.wire.compression import Codec, compress
from chronik.wire.records import CONTROL_FLAG, DELETE_HORIZON_FLAG, TRANSACTIONAL_FLAG, read_header


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
    assert gzip.decompress(compress(Codec(1), data)) == data
    assert snappy.uncompress(compress(Codec(2), data)) == data
    assert lz4.frame.decompress(compress(Codec(3), data)) == data
    assert lz4.frame.get_frame_info(compress(Codec(3), data))["block_linked"] is False
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compress(Codec(4), data)) == data


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
    assert next(header.producer_id for header in log.headers(0)) == 6, "forgotten, so not kept"


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


def test_a_late_commit_does_not_bring_an_older_record_to_the_front() -> None:
    _, log = new_log()
    put(log, (b"a", b"1"), sent=Sent(producer=(9, 0, 0), attributes=TRANSACTIONAL_FLAG))
    put(log, (b"a", b"2"))
    append(log, marker(log.end_offset, (9, 0, -1), commit=True))
    roll(log)
    clean(log)
    assert (1, b"a", b"2") in pairs_of(log)
    assert (0, b"a", b"1") not in pairs_of(log)


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
