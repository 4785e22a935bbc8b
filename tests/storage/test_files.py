"""Checkpoints, producer snapshots, index files, directories, the dump: each file on its own."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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

from chronik.broker.checkpoints import usable_offsets
from chronik.sim.disk import PowerCutError, SimDisk
from chronik.storage import checkpoints
from chronik.storage.directory import (
    create_log_directory,
    delete_log_directory,
    log_directories,
    log_name,
    sweep_deleted,
)
from chronik.storage.epochs import EpochCache
from chronik.storage.fs import RealFileSystem
from chronik.storage.index import SegmentIndex, Span
from chronik.storage.inspect import (
    BatchInfo,
    Unreadable,
    inspect_checkpoint,
    inspect_index,
    inspect_segment,
    inspect_snapshot,
)
from chronik.storage.log import Log
from chronik.storage.producer_snapshot import (
    CorruptSnapshotError,
    ProducerBatch,
    ProducerEntry,
    decode,
    encode,
    newest_snapshot,
    prune_snapshots,
    snapshot_offsets,
    snapshot_path,
    write_snapshot,
)
from chronik.storage.recovery import recover
from chronik.storage.segment import Storage

ENTRY = ProducerEntry(7, 2, -1, NOW, -1, (ProducerBatch(0, 4, 10, 14, NOW),) * 5)


def test_checkpoints_are_read_back_and_readable() -> None:
    disk = new_disk()
    offsets = {"orders-0": 1500, "a-b-1": 0}
    checkpoints.write_offsets(disk, "/data", checkpoints.RECOVERY_POINTS, offsets)
    assert checkpoints.read_offsets(disk, "/data", checkpoints.RECOVERY_POINTS) == offsets
    text = disk.contents("/data/recovery-points").decode()
    assert text.startswith("chronik recovery-points 1\n2\na-b-1 0\norders-0 1500\ncrc32c ")
    assert checkpoints.read_offsets(disk, "/data", checkpoints.HIGH_WATERMARKS) == {}


def test_a_checkpoint_with_any_byte_changed_or_missing_is_refused() -> None:
    data = checkpoints.encode_lines("log-starts", ["orders-0 12", "orders-1 7"])
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for wrong in (changed, data[:at]):
            with pytest.raises(checkpoints.CorruptCheckpointError):
                checkpoints.decode_lines("log-starts", wrong, "file")
    with pytest.raises(checkpoints.CorruptCheckpointError):
        checkpoints.decode_lines("recovery-points", data, "file")


def test_a_crash_while_a_checkpoint_is_written_leaves_the_old_or_the_new_one() -> None:
    for seed in range(60):
        disk = new_disk()
        checkpoints.write_offsets(disk, "/data", checkpoints.LOG_STARTS, {"a-0": 1})
        disk.power_cut_after = seed % 6
        done = False
        try:
            checkpoints.write_offsets(disk, "/data", checkpoints.LOG_STARTS, {"a-0": 2})
            done = True
        except PowerCutError:
            pass
        disk.crash(random.Random(seed))
        found = checkpoints.read_offsets(disk, "/data", checkpoints.LOG_STARTS)
        assert found in ([{"a-0": 2}] if done else [{"a-0": 1}, {"a-0": 2}])


def test_watermarks_cost_no_sync_and_a_power_cut_leaves_old_new_or_none() -> None:
    for seed in range(60):
        disk = new_disk()
        synced = disk.calls["fdatasync"] + disk.calls["fsync_dir"]
        for offset in (1, 2):
            checkpoints.write_offsets(disk, "/data", checkpoints.HIGH_WATERMARKS, {"a-0": offset})
        assert disk.calls["fdatasync"] + disk.calls["fsync_dir"] == synced
        disk.crash(random.Random(seed))
        found = usable_offsets(disk, "/data", checkpoints.HIGH_WATERMARKS)
        assert found in ({}, {"a-0": 1}, {"a-0": 2})


def test_the_clean_shutdown_mark_is_taken_once() -> None:
    disk = new_disk()
    assert not checkpoints.take_clean_shutdown(disk, "/data")
    checkpoints.mark_clean_shutdown(disk, "/data")
    assert checkpoints.take_clean_shutdown(disk, "/data")
    disk.crash(random.Random(0))
    assert not checkpoints.take_clean_shutdown(disk, "/data")


def test_a_snapshot_with_any_byte_changed_is_refused() -> None:
    data = encode([ENTRY, ENTRY._replace(producer_id=8, batches=())])
    assert decode(data)[0] == ENTRY
    for at in range(len(data)):
        with pytest.raises(CorruptSnapshotError):
            decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(CorruptSnapshotError):
            decode(data[:at])


def test_the_newest_whole_snapshot_within_the_log_counts() -> None:
    disk = new_disk()
    log, _ = open_log(disk)
    fill(log, 10)
    for offset in (2, 5, 8, 10):
        write_snapshot(disk, DIRECTORY, offset, [ENTRY._replace(last_timestamp=offset)])
    disk.corrupt(snapshot_path(DIRECTORY, 8), 9)
    found = newest_snapshot(disk, DIRECTORY, 9)
    assert found is not None
    assert (found[0], found[1][0].last_timestamp) == (5, 5)
    assert [header.base_offset for header in log.headers(5)] == [5, 6, 7, 8, 9]
    prune_snapshots(disk, DIRECTORY)
    assert snapshot_offsets(disk, DIRECTORY) == [8, 10]
    run(log, log.truncate_to(9))
    assert snapshot_offsets(disk, DIRECTORY) == [8]


def test_replay_yields_the_headers_of_a_log_that_begins_inside_a_segment() -> None:
    disk = new_disk()
    log, _ = open_log(disk)
    append(log, batch(0, [NOW] * 4, producer=(9, 1, 0)), batch(4, producer=(9, 1, 4)))
    assert [(h.base_offset, h.base_sequence) for h in log.headers(2)] == [(0, 0), (4, 4)]


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 5), st.integers(61, 300), st.integers(-1, 50)), max_size=40
    ),
    cut=st.integers(0, 40),
)
def test_an_index_is_read_back_and_can_be_cut_at_any_batch(
    steps: list[tuple[int, int, int]], cut: int
) -> None:
    spans: list[Span] = []
    offset, position = 100, 0
    for count, size, time in steps:
        spans.append(Span(offset, offset + count - 1, time, position, size))
        offset, position = offset + count, position + size
    index = indexed(spans)
    again = SegmentIndex.decode(*index.encode())
    assert again is not None
    assert again.encode() == index.encode()
    kept = spans[:cut]
    resumed = index.cut(kept[-1].position + kept[-1].size if kept else 0)
    for span in kept:
        if span.position >= resumed.log_size:
            resumed.add(span, 200)
    assert resumed.encode() == indexed(kept).encode()


@given(sizes=st.lists(st.integers(61, 300), max_size=30), since=st.integers(0, 35))
def test_an_index_counts_the_newest_batches_or_says_that_it_cannot(
    sizes: list[int], since: int
) -> None:
    spans: list[Span] = []
    position = 0
    for number, size in enumerate(sizes):
        spans.append(Span(100 + 2 * number, 101 + 2 * number, 0, position, size))
        position += size
    counted = indexed(spans).batches_since(100 + 2 * since)
    assert counted in (max(len(spans) - since, 0), None)
    in_reach = sum(sizes[max(since - 1, 0) :]) <= 200  # since the last entry, for sure
    assert counted is not None or not in_reach


def indexed(spans: list[Span]) -> SegmentIndex:
    index = SegmentIndex(100)
    for span in spans:
        index.add(span, 200)
    return index


def test_epochs_are_cut_at_both_ends() -> None:
    cache = EpochCache()
    for epoch, start in ((1, 0), (3, 10), (4, 20)):
        cache.assign(epoch, start)
    cache.assign(2, 30)
    assert cache.entries() == [(1, 0), (3, 10), (4, 20)]
    cache.truncate_start(15)
    assert cache.entries() == [(3, 15), (4, 20)]
    assert [cache.epoch_at(offset) for offset in (14, 15, 25)] == [-1, 3, 4]
    cache.truncate_end(20)
    assert cache.entries() == [(3, 15)]
    cache.assign(9, 15)
    assert cache.entries() == [(9, 15)]


# Directories.


def test_fm58_a_deleted_logs_bytes_leave_the_disk_and_never_come_back() -> None:
    for cut in range(40):
        disk = new_disk()
        log, _ = open_log(disk)
        fill(log, 20)
        disk.power_cut_after = cut
        done = False
        try:
            delete_log_directory(log.storage, DIRECTORY, "id1")
            done = True
        except PowerCutError:
            pass
        disk.crash(random.Random(cut))
        there = log_directories(disk, "/data")
        sweep_deleted(disk, "/data")
        if cut >= 2:
            assert there == [], "the rename was synced: it is no log any more"
        if there == []:
            assert disk.used_bytes == 0
            create_log_directory(disk, DIRECTORY)
            assert open_log(disk)[0].end_offset == 0
        if done:
            return
    pytest.fail("the deletion never finished")


def test_a_deleted_log_that_is_being_read_stays_readable(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("data")
    directory = f"{root}/orders-0"
    fs = RealFileSystem()
    create_log_directory(fs, directory)
    log, _ = recover(Storage(fs), directory, SMALL)
    made = fill(log, 20)
    held = log.read(0, 200, 20, at_least_one_batch=True)
    delete_log_directory(log.storage, directory, "id1")
    assert fs.listdir(str(root)) == []
    assert joined(map(bytes, held.slices)) == joined(made)[:200]


def test_directory_names() -> None:
    disk = SimDisk()
    disk.mkdir("/data")
    long = "t" * 249
    for name in (log_name("a-b", 3), log_name(long, 0), "metadata", "x-0.9f-delete", "-1", "a-1b"):
        disk.mkdir(f"/data/{name}")
    assert log_directories(disk, "/data") == ["a-b-3", f"{long}-0"]
    delete_log_directory(Storage(disk), f"/data/{long}-0", "f" * 32)
    assert sweep_deleted(disk, "/data") == ["x-0.9f-delete"]


def test_the_real_file_system_and_the_simulated_one_agree(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = str(tmp_path_factory.mktemp("orders-0"))
    disk = new_disk()
    logs: list[Log] = [
        recover(Storage(RealFileSystem()), directory, SMALL)[0],
        open_log(disk)[0],
    ]
    results = []
    for log in logs:
        fill(log, 25)
        run(log, log.truncate_to(21))
        fill(log, 8)
        run(log, log.advance_start(9))
        run(log, log.expire(NOW, -1, -1, 29))
        run(log, log.checkpoint(closing=True))
        again, report = recover(log.storage, log.directory, SMALL)
        names = sorted(log.storage.fs.listdir(log.directory))
        results.append((read_all(again), again.start_offset, report.bytes_scanned, names))
    assert results[0] == results[1]


# The dump.


def test_the_dump_shows_batches_indexes_checkpoints_and_snapshots() -> None:
    disk = new_disk()
    log, _ = open_log(disk)
    append(log, batch(0, [NOW, NOW + 1], codec=4, producer=(7, 1, 0), epoch=3))
    made = fill(log, 20)
    write_snapshot(disk, DIRECTORY, 5, [ENTRY])
    path = log.segments[0].path
    first, *_, last = inspect_segment(disk, path)
    assert isinstance(first, BatchInfo)
    assert isinstance(last, BatchInfo)
    assert (first.codec, first.producer_id, first.leader_epoch) == ("zstd", 7, 3)
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 1, 2)
    assert first.crc_ok
    assert len(made) == 20
    index = inspect_index(disk, path.replace(".log", ".index"))
    assert index is not None
    assert (index.kind, index.is_whole, index.summary.log_size) == ("offset", True, disk.size(path))
    times = inspect_index(disk, path.replace(".log", ".timeindex"))
    assert times is not None
    assert times.kind == "time"
    assert all(position < disk.size(path) for _, position in index.entries)
    epochs = inspect_checkpoint(disk, f"{DIRECTORY}/leader-epoch-checkpoint")
    assert (epochs.kind, epochs.entries) == ("leader-epoch-checkpoint", ("3 0",))
    assert inspect_snapshot(disk, snapshot_path(DIRECTORY, 5)) == [ENTRY]


def test_the_dump_tells_where_a_segment_is_damaged() -> None:
    disk = new_disk()
    log, _ = open_log(disk)
    made = fill(log, 3)
    path = log.segments[0].path
    disk.corrupt(path, len(made[0]) + 70)
    disk.corrupt(path, len(joined(made[:2])) + 16, 0xFF)
    found = list(inspect_segment(disk, path))
    assert [entry.crc_ok for entry in found if isinstance(entry, BatchInfo)] == [True, False]
    assert found[-1] == Unreadable(len(joined(made[:2])), len(made[2]), "magic -3")
    write_snapshot(disk, DIRECTORY, 1, [ENTRY])
    assert inspect_index(disk, snapshot_path(DIRECTORY, 1)) is None, "no index at all"
