"""The durable half of a Raft node: an append-only log of frames, and snapshot files.

    <first frame's sequence>.log        frames, see `raft/wal.py`; the last file is written to
    <index>-<term>.snapshot             one snapshot: | magic 4 | crc u32 | snapshot |

Save      one frame, one fdatasync; a snapshot file is complete before the frame that marks it.
Rotation  the new segment's first frame repeats hard state and mark, so older segments can go.
Compact   snapshot file, new segment with its mark, then old segments one by one, oldest first.
Open      an unfinished last frame is cut; damage, a missing segment or snapshot, or a log shorter
          than its commit index raise RaftStoreDamaged: such a node could vote twice.

A failed write is undone and may be tried again (disk full). After a failed fdatasync nobody knows
what is on the disk, so every later call fails until the store is opened anew.
"""

import errno
from collections.abc import Sequence
from typing import Final, Self

from chronik.model.crc import crc32c
from chronik.raft import wal
from chronik.raft.codec import CodecError, Reader, encode_snapshot, read_snapshot
from chronik.raft.messages import ConfState, Entry, HardState, Snapshot, Stored
from chronik.storage.fs import (
    TEMPORARY_SUFFIX,
    FileSystem,
    join,
    parent,
    read_whole,
    write_all,
    write_atomically,
)

SEGMENT_BYTES: Final = 16 * 1024 * 1024
BOOTSTRAP_INDEX: Final = 1
"""The initial members are a snapshot of this index, so that whoever joins later gets them too."""
LOG_SUFFIX: Final = ".log"
SNAPSHOT_SUFFIX: Final = ".snapshot"
_SNAPSHOT_MAGIC: Final = b"CrSN"


class RaftStoreDamaged(Exception):  # noqa: N818 - a state of the disk, not of the call
    """Bytes that were durable are gone or wrong: the node must not take part."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class _Segment:
    """One file of the log."""

    __slots__ = ("first_sequence", "last_entry", "path")

    def __init__(self, path: str, first_sequence: int) -> None:
        self.path = path
        self.first_sequence = first_sequence
        self.last_entry = 0
        """The highest entry index ever written to it."""


class RaftStore:
    """All calls block. One caller at a time."""

    def __init__(self, fs: FileSystem, directory: str, segment_bytes: int) -> None:
        self._fs = fs
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._file: int | None = None
        self._size = 0
        self._sequence = 1
        self._hard_state = HardState()
        self._written_hard_state = HardState()
        self._mark: wal.SnapshotMark | None = None
        self._found: Stored | None = None
        self._is_failed = False

    @classmethod
    def open(cls, fs: FileSystem, directory: str, segment_bytes: int = SEGMENT_BYTES) -> Self:
        """Recovers what is in `directory`, which is created if need be."""
        store = cls(fs, directory, segment_bytes)
        _make_directory(fs, directory)
        store._recover()
        return store

    @property
    def is_empty(self) -> bool:
        """True for a node that was never bootstrapped and has never heard of a cluster."""
        return self._mark is None and self._hard_state == HardState()

    @property
    def is_failed(self) -> bool:
        """True after a failed sync: no further call helps, only opening the store anew."""
        return self._is_failed

    def load(self) -> Stored:
        """What `open` has found (or `bootstrap` written); before the first `save` only."""
        assert self._found is not None, "load comes before save"
        return self._found

    def bootstrap(self, conf_state: ConfState) -> None:
        """Writes the initial members; on first start of each of them, with equal members."""
        assert self.is_empty, "bootstrap is for a node that knows nothing"
        snapshot = Snapshot(BOOTSTRAP_INDEX, 1, conf_state)
        hard_state = HardState(term=1, commit=BOOTSTRAP_INDEX)
        self.save(hard_state, (), snapshot)
        self._found = Stored(hard_state, conf_state, snapshot, ())

    def save(
        self,
        hard_state: HardState | None,
        entries: Sequence[Entry],
        snapshot: Snapshot | None = None,
    ) -> None:
        """Everything is durable on return. A commit index alone waits for the next frame."""
        self._found = None
        records: list[bytes] = []
        mark = self._mark
        if snapshot is not None:
            if self._file is None:
                # The log comes first: snapshots without one mean that it was lost.
                self._roll([], 0)
            self._write_snapshot(snapshot)
            mark = wal.SnapshotMark(snapshot.index, snapshot.term)
            records.append(wal.mark_record(mark, installed=True))
        records.extend(map(wal.entry_record, entries))
        state = self._hard_state if hard_state is None else hard_state
        if not records and _same_promise(state, self._written_hard_state):
            # Losing it costs nothing: the leader, or the next election, tells it again.
            self._hard_state = state
            return
        if state != self._written_hard_state:
            records.append(wal.hard_state_record(state))
        self._append(records, entries[-1].index if entries else 0)
        self._hard_state = self._written_hard_state = state
        if mark != self._mark:
            self._mark = mark
            self._delete_snapshots()

    def compact(self, snapshot: Snapshot) -> None:
        """Stores a snapshot that this node has taken and deletes the segments it covers."""
        if self._mark is not None and snapshot.index <= self._mark.index:
            return
        self._write_snapshot(snapshot)
        mark = wal.SnapshotMark(snapshot.index, snapshot.term)
        self._roll([wal.mark_record(mark, installed=False)], 0)
        self._mark = mark
        self._delete_snapshots()
        while len(self._segments) > 1 and self._segments[0].last_entry <= snapshot.index:
            self._fs.unlink(self._segments[0].path)
            # One by one: the log must stay without a gap whatever a crash undoes.
            self._fs.fsync_dir(self._directory)
            del self._segments[0]

    def close(self) -> None:
        """Writes a commit index that still waits, and releases the file.

        On a disk that takes nothing the commit index is let go: the leader tells it again.
        """
        try:
            if self._hard_state != self._written_hard_state and not self._is_failed:
                self._append([wal.hard_state_record(self._hard_state)], 0)
                self._written_hard_state = self._hard_state
        except OSError:
            pass
        finally:
            if self._file is not None:
                self._fs.close(self._file)
                self._file = None

    # ---- writing

    def _append(self, records: list[bytes], last_entry: int) -> None:
        if self._file is None or self._size >= self._segment_bytes:
            self._roll(records, last_entry)
            return
        self._check_usable()
        frame = wal.encode_frame(self._sequence, records)
        try:
            write_all(self._fs, self._file, [frame], self._size)
        except OSError:
            self._undo(self._file, self._size)
            raise
        self._sync(self._file)
        self._written(len(frame), last_entry)

    def _roll(self, records: list[bytes], last_entry: int) -> None:
        """Starts a segment; its first frame says all that older ones said about state."""
        self._check_usable()
        checkpoint = [wal.hard_state_record(self._hard_state)]
        if self._mark is not None:
            checkpoint.append(wal.mark_record(self._mark, installed=False))
        frame = wal.encode_frame(self._sequence, checkpoint + records)
        segment = _Segment(
            join(self._directory, f"{self._sequence:020d}{LOG_SUFFIX}"), self._sequence
        )
        file = self._fs.create(segment.path)
        try:
            write_all(self._fs, file, [frame], 0)
        except OSError:
            self._discard(file, segment.path)
            raise
        self._sync(file)
        self._sync_directory()
        if self._file is not None:
            self._fs.close(self._file)
        self._file, self._size = file, 0
        self._segments.append(segment)
        self._written_hard_state = self._hard_state
        self._written(len(frame), last_entry)

    def _written(self, size: int, last_entry: int) -> None:
        self._size += size
        self._sequence += 1
        segment = self._segments[-1]
        segment.last_entry = max(segment.last_entry, last_entry)

    def _undo(self, file: int, size: int) -> None:
        self._is_failed = True
        self._fs.truncate(file, size)
        self._is_failed = False

    def _discard(self, file: int, path: str) -> None:
        self._is_failed = True
        self._fs.close(file)
        self._fs.unlink(path)
        self._fs.fsync_dir(self._directory)
        self._is_failed = False

    def _sync(self, file: int) -> None:
        self._is_failed = True
        self._fs.fdatasync(file)
        self._is_failed = False

    def _sync_directory(self) -> None:
        self._is_failed = True
        self._fs.fsync_dir(self._directory)
        self._is_failed = False

    def _check_usable(self) -> None:
        if self._is_failed:
            raise OSError(errno.EIO, "an earlier sync failed; open the store anew", self._directory)

    # ---- snapshots

    def _snapshot_name(self, mark: wal.SnapshotMark) -> str:
        return f"{mark.index:020d}-{mark.term:020d}{SNAPSHOT_SUFFIX}"

    def _write_snapshot(self, snapshot: Snapshot) -> None:
        self._check_usable()
        body = encode_snapshot(snapshot)
        head = _SNAPSHOT_MAGIC + crc32c(body).to_bytes(4, "big")
        name = self._snapshot_name(wal.SnapshotMark(snapshot.index, snapshot.term))
        write_atomically(self._fs, join(self._directory, name), [head, body])

    def _read_snapshot(self, mark: wal.SnapshotMark) -> Snapshot:
        path = join(self._directory, self._snapshot_name(mark))
        try:
            data = read_whole(self._fs, path)
        except FileNotFoundError as error:
            raise RaftStoreDamaged(path, 0, "the snapshot is missing") from error
        body = data[8:]
        if data[:4] != _SNAPSHOT_MAGIC or data[4:8] != crc32c(body).to_bytes(4, "big"):
            raise RaftStoreDamaged(path, 0, "the snapshot's checksum does not match")
        snapshot = read_snapshot(Reader(body))
        if wal.SnapshotMark(snapshot.index, snapshot.term) != mark:
            raise RaftStoreDamaged(path, 8, f"a snapshot of {snapshot.index} under this name")
        return snapshot

    def _delete_snapshots(self) -> None:
        """All but the marked one; a crash may bring them back, the next open deletes them."""
        kept = self._snapshot_name(self._mark) if self._mark is not None else ""
        for name in sorted(self._fs.listdir(self._directory)):
            if name.endswith(SNAPSHOT_SUFFIX) and name != kept:
                self._fs.unlink(join(self._directory, name))

    # ---- recovery

    def _recover(self) -> None:
        names = sorted(self._fs.listdir(self._directory))
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):
                self._fs.unlink(join(self._directory, name))
        replay = wal.Replay()
        logs = [name for name in names if name.endswith(LOG_SUFFIX)]
        for position, name in enumerate(logs):
            self._recover_segment(replay, name, is_last=position == len(logs) - 1)
        self._check_not_wiped(names)
        self._check_whole(replay)
        self._hard_state = self._written_hard_state = replay.hard_state
        self._mark = replay.mark
        snapshot = self._read_snapshot(replay.mark) if replay.mark is not None else Snapshot()
        self._delete_snapshots()
        self._found = Stored(
            replay.hard_state, snapshot.conf_state, snapshot, tuple(replay.entries)
        )

    def _recover_segment(self, replay: wal.Replay, name: str, *, is_last: bool) -> None:
        path = join(self._directory, name)
        first = int(name.removesuffix(LOG_SUFFIX))
        if self._segments and first != self._sequence:
            raise RaftStoreDamaged(path, 0, f"starts with frame {first}, due was {self._sequence}")
        data = read_whole(self._fs, path)
        found = wal.scan(data, first)
        if found.problem and not (found.is_torn and is_last):
            raise RaftStoreDamaged(path, found.size, found.problem)
        if not found.frames and not is_last:
            raise RaftStoreDamaged(path, 0, "an empty segment before others")
        if not found.frames:
            # A rotation that was not finished, and so not acknowledged.
            self._fs.unlink(path)
            self._fs.fsync_dir(self._directory)
            self._sequence = max(self._sequence, first)
            return
        segment = _Segment(path, first)
        for frame in found.frames:
            try:
                segment.last_entry = max(segment.last_entry, replay.play(frame.payload))
            except CodecError as error:
                raise RaftStoreDamaged(path, frame.position, str(error)) from error
        self._segments.append(segment)
        self._sequence = first + len(found.frames)
        if is_last:
            self._reopen(path, found.size, len(data))

    def _reopen(self, path: str, size: int, file_size: int) -> None:
        self._file = self._fs.open(path)
        self._size = size
        if file_size > size:
            self._fs.truncate(self._file, size)
            self._fs.fdatasync(self._file)

    def _check_not_wiped(self, names: Sequence[str]) -> None:
        """Snapshots, or a later segment's torn beginning, without any log: the log was lost."""
        if self._segments:
            return
        snapshots = [name for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        if self._sequence > 1 or snapshots:
            raise RaftStoreDamaged(self._directory, 0, "the log is missing")

    def _check_whole(self, replay: wal.Replay) -> None:
        problem = wal.check(replay)
        if problem:
            path = self._segments[-1].path if self._segments else self._directory
            raise RaftStoreDamaged(path, self._size, problem)


def _same_promise(one: HardState, other: HardState) -> bool:
    return (one.term, one.vote) == (other.term, other.vote)


def _make_directory(fs: FileSystem, directory: str) -> None:
    try:
        fs.mkdir(directory)
    except FileExistsError:
        return
    fs.fsync_dir(parent(directory))
