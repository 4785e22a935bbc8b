"""The Raft log on disk: what is saved is found again, what was damaged is refused, by position."""

import errno
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.raft import wal
from chronik.raft.messages import ConfState, Entry, HardState, Snapshot, Stored
from chronik.sim.disk import PowerCutError, SimDisk
from chronik.storage.fs import RealFileSystem
from chronik.storage.raft_store import RaftStore, RaftStoreDamaged

DIRECTORY = "/raft"
VOTERS = ConfState(voters=(0, 1, 2))
FIRST = "/raft/00000000000000000001.log"


def new_store(disk: SimDisk, segment_bytes: int = 4096) -> RaftStore:
    store = RaftStore.open(disk, DIRECTORY, segment_bytes)
    store.bootstrap(VOTERS)
    return store


def reopened(disk: SimDisk, segment_bytes: int = 4096) -> Stored:
    disk.crash(Random(0))
    return RaftStore.open(disk, DIRECTORY, segment_bytes).load()


def entry(index: int, term: int = 1, data: bytes = b"") -> Entry:
    return Entry(term, index, data=data or b"entry %d of term %d" % (index, term))


def fill(store: RaftStore, first: int, last: int, term: int = 1) -> None:
    for index in range(first, last + 1):
        store.save(HardState(term, 0, index - 1), (entry(index, term),))


def logs(disk: SimDisk) -> list[str]:
    return sorted(name for name in disk.listdir(DIRECTORY) if name.endswith(".log"))


def test_what_is_saved_is_found_after_a_power_cut() -> None:
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 9)
    store.save(HardState(4, 2, 9), (entry(10, 4), entry(11, 4)))
    found = reopened(disk)
    assert found.hard_state == HardState(4, 2, 9)
    assert found.conf_state == VOTERS
    assert [one.index for one in found.entries] == list(range(2, 12))
    assert found.entries[-1] == entry(11, 4)


def test_it_works_on_real_files(tmp_path: object) -> None:
    directory = f"{tmp_path}/raft"
    store = RaftStore.open(RealFileSystem(), directory, 512)
    store.bootstrap(VOTERS)
    fill(store, 2, 40)
    store.compact(Snapshot(30, 1, VOTERS, b"state"))
    store.close()
    found = RaftStore.open(RealFileSystem(), directory, 512).load()
    assert found.snapshot == Snapshot(30, 1, VOTERS, b"state")
    assert [one.index for one in found.entries] == list(range(31, 41))


def test_a_new_entry_replaces_the_old_one_and_all_after_it() -> None:
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 9)
    store.save(HardState(2, None, 1), (entry(5, 2),))
    assert [(one.index, one.term) for one in reopened(disk).entries] == [
        (2, 1),
        (3, 1),
        (4, 1),
        (5, 2),
    ]


def test_one_save_is_one_write_and_one_sync() -> None:
    disk = SimDisk()
    store = new_store(disk)
    before = disk.calls.copy()
    store.save(HardState(2, 1, 1), tuple(entry(index, 2) for index in range(2, 50)))
    assert disk.calls - before == {"pwritev": 1, "fdatasync": 1}


def test_a_commit_index_alone_costs_no_sync_and_is_not_lost_by_closing() -> None:
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 3)
    before = disk.calls.copy()
    store.save(HardState(1, 0, 3), ())
    assert disk.calls == before
    store.close()
    assert reopened(disk).hard_state.commit == 3


def test_a_vote_is_synced_before_save_returns() -> None:
    disk = SimDisk()
    store = new_store(disk)
    store.save(HardState(7, 2, 1), ())
    for seed in range(20):
        disk.crash(Random(seed))
        assert RaftStore.open(disk, DIRECTORY).load().hard_state == HardState(7, 2, 1)


def test_segments_rotate_and_compaction_deletes_them() -> None:
    disk = SimDisk()
    store = new_store(disk, segment_bytes=512)
    fill(store, 2, 100)
    assert len(logs(disk)) > 10
    store.compact(Snapshot(90, 1, VOTERS, b"state at 90"))
    assert len(logs(disk)) < 5
    found = reopened(disk, 512)
    assert found.snapshot.data == b"state at 90"
    assert [one.index for one in found.entries] == list(range(91, 101))
    assert found.hard_state == HardState(1, 0, 99)


def test_an_installed_snapshot_replaces_the_log() -> None:
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 60)
    installed = Snapshot(50, 3, VOTERS, b"the leader's")
    store.save(HardState(3, None, 50), (entry(51, 3),), installed)
    found = reopened(disk)
    assert (found.snapshot, found.entries) == (installed, (entry(51, 3),))
    assert [name for name in disk.listdir(DIRECTORY) if name.endswith(".snapshot")] == [
        f"{50:020d}-{3:020d}.snapshot"
    ]


def test_entries_of_deleted_segments_are_not_missed() -> None:
    # The mark of the first snapshot comes after entries whose predecessors were deleted later.
    disk = SimDisk()
    store = new_store(disk, segment_bytes=400)
    fill(store, 2, 30)
    store.compact(Snapshot(10, 1, VOTERS, b"10"))
    fill(store, 31, 40)
    store.compact(Snapshot(25, 1, VOTERS, b"25"))
    found = reopened(disk, 400)
    assert [one.index for one in found.entries] == list(range(26, 41))


def test_an_older_snapshot_is_not_taken_back() -> None:
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 9)
    store.compact(Snapshot(8, 1, VOTERS, b"8"))
    store.compact(Snapshot(5, 1, VOTERS, b"5"))
    assert reopened(disk).snapshot.index == 8


def test_an_empty_directory_is_an_empty_node() -> None:
    store = RaftStore.open(SimDisk(), DIRECTORY)
    assert store.is_empty
    assert store.load() == Stored(HardState(), ConfState(), Snapshot(), ())


@pytest.mark.parametrize("operations", range(12))
def test_a_first_save_that_is_a_snapshot_survives_a_power_cut(operations: int) -> None:
    # A node that joins may hear of its cluster by a snapshot first.
    for seed in range(10):
        disk = SimDisk()
        store = RaftStore.open(disk, DIRECTORY)
        disk.power_cut_after = operations
        saved = Stored(HardState(4, None, 50), VOTERS, Snapshot(50, 3, VOTERS, b"state"), ())
        try:
            store.save(saved.hard_state, (), saved.snapshot)
        except PowerCutError:
            disk.crash(Random(seed))
            again = RaftStore.open(disk, DIRECTORY)
            assert again.is_empty or again.load() == saved
        else:
            assert reopened(disk) == saved


# ---- damage


def test_a_flipped_bit_in_the_middle_is_refused_with_its_place() -> None:
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 9)
    frames = wal.scan(disk.contents(FIRST), 1).frames
    disk.corrupt(FIRST, frames[3].position + 40)
    with pytest.raises(RaftStoreDamaged) as damaged:
        reopened(disk)
    assert damaged.value.path == FIRST
    assert damaged.value.position == frames[3].position


@pytest.mark.parametrize("offset", [0, 5, 10, 18, 22, 30, -1])
def test_a_flipped_bit_in_the_last_frame_is_damage_and_not_a_torn_write(offset: int) -> None:
    # Cutting it would forget a vote or an entry that was promised to be durable.
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 4)
    data = disk.contents(FIRST)
    last = wal.scan(data, 1).frames[-1].position
    disk.corrupt(FIRST, last + offset if offset >= 0 else len(data) - 1, 0x10)
    with pytest.raises(RaftStoreDamaged):
        reopened(disk)


def test_a_log_shorter_than_its_commit_index_is_refused() -> None:
    disk = SimDisk()
    store = new_store(disk)
    store.save(HardState(1, None, 1), (entry(2),))
    store.save(HardState(2, None, 9), ())
    with pytest.raises(RaftStoreDamaged, match="commit 9 is past the last entry 2"):
        reopened(disk)


def test_a_missing_segment_is_refused() -> None:
    disk = SimDisk()
    store = new_store(disk, segment_bytes=300)
    fill(store, 2, 40)
    disk.unlink(f"{DIRECTORY}/{logs(disk)[2]}")
    disk.fsync_dir(DIRECTORY)
    with pytest.raises(RaftStoreDamaged, match="due was"):
        reopened(disk)


@pytest.mark.parametrize("suffix", [".snapshot", ".log"])
def test_missing_files_are_refused(suffix: str) -> None:
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 9)
    store.compact(Snapshot(8, 1, VOTERS, b"8"))
    for name in disk.listdir(DIRECTORY):
        if name.endswith(suffix):
            disk.unlink(f"{DIRECTORY}/{name}")
    disk.fsync_dir(DIRECTORY)
    with pytest.raises(RaftStoreDamaged, match="missing"):
        reopened(disk)


def test_a_damaged_snapshot_is_refused() -> None:
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 9)
    store.compact(Snapshot(8, 1, VOTERS, b"8"))
    name = next(name for name in disk.listdir(DIRECTORY) if name.endswith(".snapshot"))
    disk.corrupt(f"{DIRECTORY}/{name}", 20)
    with pytest.raises(RaftStoreDamaged, match="checksum"):
        reopened(disk)


TORN: dict[str, Callable[[bytes], bytes]] = {
    "half a header": lambda frame: frame[:11],
    "half a payload": lambda frame: frame[:40],
    "all but the last byte": lambda frame: frame[:-1],
    "only zeros": lambda frame: bytes(len(frame)),
    "a header and zeros": lambda frame: frame[:24] + bytes(len(frame) - 24),
    "half a header and zeros": lambda frame: frame[:11] + bytes(len(frame) - 11),
    "the first sector is missing": lambda frame: bytes(512) + frame[512:],
    "a middle sector is missing": lambda frame: frame[:512] + bytes(1024) + frame[1536:],
    "the last sector is missing": lambda frame: frame[:1024] + bytes(len(frame) - 1024),
}


@pytest.mark.parametrize("tear", TORN.values(), ids=TORN.keys())
def test_fm57_an_unfinished_last_frame_is_cut(tear: Callable[[bytes], bytes]) -> None:
    good = wal.encode_frame(1, [wal.hard_state_record(HardState(1))])
    torn = tear(wal.encode_frame(2, [wal.entry_record(entry(2, data=b"x" * 3000))]))
    found = wal.scan(good + torn, 1)
    assert (len(found.frames), found.size, found.is_torn) == (1, len(good), True)


def test_fm57_writing_goes_on_after_a_torn_tail() -> None:
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 5)
    disk.power_cut_after = 1
    with pytest.raises(PowerCutError):
        store.save(None, (entry(6, data=b"x" * 2000),))
    for seed in range(30):
        disk.crash(Random(seed))
        store = RaftStore.open(disk, DIRECTORY, 4096)
        last = store.load().entries[-1].index
        assert last in (5 + seed, 6 + seed)
        if last == 5 + seed:
            store.save(None, (entry(6 + seed),))
        disk.power_cut_after = 1
        with pytest.raises(PowerCutError):
            store.save(None, (entry(7 + seed, data=b"y" * 2000),))


# ---- errors of the disk


def test_fm63_a_full_disk_loses_nothing_and_recovers() -> None:
    disk = SimDisk()
    store = new_store(disk, segment_bytes=400)
    fill(store, 2, 9)
    disk.capacity_bytes = disk.used_bytes + 20
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            store.save(HardState(2, 1, 9), (entry(10, 2),))
    disk.heal()
    store.save(HardState(2, 1, 9), (entry(10, 2),))
    found = reopened(disk, 400)
    assert [one.index for one in found.entries] == list(range(2, 11))
    assert found.hard_state == HardState(2, 1, 9)


def test_after_a_failed_sync_nothing_is_promised_until_the_store_is_opened_anew() -> None:
    disk = SimDisk()
    store = new_store(disk)
    fill(store, 2, 4)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        store.save(HardState(2, 1, 4), ())
    with pytest.raises(OSError, match="open the store anew"):
        store.save(HardState(2, 1, 4), ())
    assert store.is_failed
    assert [one.index for one in reopened(disk).entries] == [2, 3, 4]


# ---- anything may happen

STEP = st.tuples(
    st.sampled_from(["append", "append", "replace", "vote", "commit", "compact", "install"]),
    st.integers(0, 60),
)


class Operation(NamedTuple):
    """One call of the store, and what it does to a perfect disk."""

    on_store: Callable[[RaftStore], None]
    on_model: Callable[[], None]


class Model:
    """What a perfect disk would hold."""

    def __init__(self) -> None:
        self.hard_state = HardState(1, None, 1)
        self.snapshot = Snapshot(1, 1, VOTERS)
        self.entries: list[Entry] = []

    @property
    def last(self) -> int:
        return self.entries[-1].index if self.entries else self.snapshot.index

    def operation(self, kind: str, number: int) -> Operation:
        if kind == "compact":
            taken = self.compact(number)
            if taken is None:
                return Operation(lambda _: None, lambda: None)
            return Operation(lambda store: store.compact(taken), lambda: self.compacted(taken))
        plan = self.plan(kind, number)
        return Operation(lambda store: store.save(*plan), lambda: self.take(*plan))

    def plan(self, kind: str, number: int) -> tuple[HardState, list[Entry], Snapshot | None]:
        """The arguments of the next save."""
        state = self.hard_state
        commit = max(state.commit, self.snapshot.index)
        if kind == "append":
            first = self.last + 1
            return state, [entry(first + n, state.term) for n in range(number % 4 + 1)], None
        if kind == "replace" and self.last > commit:
            first = commit + 1 + number % (self.last - commit)
            return HardState(state.term + 1, None, commit), [entry(first, state.term + 1)], None
        if kind == "install":
            installed = Snapshot(self.last + number + 1, state.term, VOTERS, b"installed")
            return HardState(state.term, state.vote, installed.index), [], installed
        if kind == "commit":
            return HardState(state.term, state.vote, self.last), [], None
        return HardState(state.term + 1, number, commit), [], None

    def take(self, state: HardState, entries: list[Entry], snapshot: Snapshot | None) -> None:
        self.hard_state = state
        if snapshot is not None:
            self.snapshot, self.entries = snapshot, []
        if entries:
            self.entries = [one for one in self.entries if one.index < entries[0].index] + entries

    def compact(self, number: int) -> Snapshot | None:
        """A snapshot of something committed and not yet covered."""
        width = self.hard_state.commit - self.snapshot.index
        if width <= 0:
            return None
        index = self.snapshot.index + 1 + number % width
        term = next(one.term for one in self.entries if one.index == index)
        return Snapshot(index, term, VOTERS, b"taken")

    def compacted(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.entries = [one for one in self.entries if one.index > snapshot.index]

    def matches(self, found: Stored) -> bool:
        # A commit index alone is not synced, so an older one may be found.
        promise = (self.hard_state.term, self.hard_state.vote)
        return (
            (found.hard_state.term, found.hard_state.vote) == promise
            and found.hard_state.commit <= self.hard_state.commit
            and found.snapshot == self.snapshot
            and list(found.entries) == self.entries
        )


@settings(max_examples=60)
@given(st.lists(STEP, max_size=25), st.integers(0, 12), st.integers(0, 1000))
def test_fm54_whatever_was_saved_is_found_wherever_the_power_goes(
    steps: list[tuple[str, int]], cut_after: int, seed: int
) -> None:
    disk, model = SimDisk(), Model()
    store = new_store(disk, segment_bytes=300)
    under_way: Operation | None = None
    for position, (kind, number) in enumerate(steps):
        if position == len(steps) - 1:
            disk.power_cut_after = cut_after
        under_way = model.operation(kind, number)
        try:
            under_way.on_store(store)
        except PowerCutError:
            break
        under_way.on_model()
        under_way = None
    disk.crash(Random(seed))
    found = RaftStore.open(disk, DIRECTORY, 300).load()
    # What was under way when the power went is there as a whole, or not at all.
    if under_way is not None and not model.matches(found):
        under_way.on_model()
    assert model.matches(found)
