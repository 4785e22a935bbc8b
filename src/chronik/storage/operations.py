"""What is done to a log's files, step by step: the part that blocks and belongs in a disk thread.

An operation is prepared by the log (event loop, memory only), executed once, applied or aborted
by the log. The order of steps is the crash procedure: each comment says what a restart finds after
the step before. `docs/reference/storage-format.md` has the same as a table.
"""

from chronik.storage.checkpoints import read_lines, write_lines
from chronik.storage.compaction_swap import Swap, drop_cleaner_checkpoint
from chronik.storage.epochs import write_epochs
from chronik.storage.fs import (
    FileSystem,
    copy_range,
    join,
    unlink_if_present,
    write_all,
)
from chronik.storage.index import SegmentIndex, Span
from chronik.storage.producer_snapshot import snapshot_offsets, snapshot_path
from chronik.storage.segment import Segment, Storage, unlink_index, write_index
from chronik.wire.records import Buffer

LOG_START_FILE = "log-start-offset"
RECOVERY_LIMIT_FILE = "recovery-point-limit"
"""Written when a log is cut: the node's recovery points, written before, promise too much of it."""


class Repair:
    """Puts the disk back to what the log knows, after a write that failed halfway."""

    __slots__ = ("active", "directory", "size", "storage", "strays")

    def __init__(
        self, storage: Storage, directory: str, active: Segment | None, strays: set[int]
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.active = active
        self.size = active.size if active is not None else 0
        self.strays = strays
        """Base offsets of segments the failed write may have created."""

    def execute(self) -> None:
        fs = self.storage.fs
        for base_offset in sorted(self.strays, reverse=True):
            unlink_segment(self.storage, self.directory, base_offset)
        if self.active is not None:
            # An index that describes the cut bytes must be gone for good before others follow.
            unlink_index(fs, self.directory, self.active.base_offset)
        fs.fsync_dir(self.directory)
        if self.active is not None:
            with self.storage.files.pinned(self.active.path) as file:
                fs.truncate(file, self.size)
                # Else a power cut could bring the failed batches back behind the next ones.
                fs.fdatasync(file)


class Part:
    """The share of a write that goes to one segment."""

    __slots__ = ("buffers", "created", "end", "index", "position", "segment", "spans")

    def __init__(self, segment: Segment, index: SegmentIndex, *, created: bool) -> None:
        self.segment = segment
        self.index = index
        self.created = created
        self.position = segment.size
        self.end = segment.size
        """Size of the segment once this part is written."""
        self.buffers: list[Buffer] = []
        self.spans: list[Span] = []

    def full_index(self) -> SegmentIndex:
        """The segment's index with this part in it; the live one is not touched."""
        index = self.index.copy()
        for span in self.spans:
            index.add(span, self.segment.interval)
        return index


class Write:
    """An append. `execute` may run in any thread, once; then `Log.apply` or `Log.abort`."""

    __slots__ = (
        "base_offset",
        "directory",
        "end_offset",
        "epochs",
        "new_epochs",
        "parts",
        "repair",
        "size",
        "storage",
        "sync_failed",
        "synced",
    )

    def __init__(
        self, storage: Storage, directory: str, base_offset: int, repair: Repair | None
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.size = 0
        self.parts: list[Part] = []
        self.repair = repair
        self.new_epochs: list[tuple[int, int]] = []
        self.epochs: list[tuple[int, int]] = []
        self.synced = False
        self.sync_failed = False

    @property
    def seals(self) -> bool:
        """True where a segment is finished, its index and the epochs written."""
        return len(self.parts) > 1

    @property
    def is_plain(self) -> bool:
        """True where only bytes are added to a file that exists."""
        return self.repair is None and len(self.parts) == 1 and not self.parts[0].created

    def execute(self, sync: bool) -> None:
        """Blocks. Few system calls: one pwritev per segment, one fdatasync if `sync`."""
        if self.repair is not None:
            self.repair.execute()
        previous: Part | None = None
        for part in self.parts:
            if part.created and previous is not None:
                self._seal(previous)
            self._write(part)
            previous = part
        if sync and previous is not None:
            with self.storage.files.pinned(previous.segment.path) as file:
                self._sync(file)
            self.synced = True

    def _write(self, part: Part) -> None:
        files, fs = self.storage.files, self.storage.fs
        if part.created:
            # Before the name is durable nothing in the file counts.
            with files.pinned(part.segment.path, create=True):
                fs.fsync_dir(self.directory)
        if part.buffers:
            with files.pinned(part.segment.path) as file:
                write_all(fs, file, part.buffers, part.position)

    def _seal(self, part: Part) -> None:
        # All of the old segment is durable before the new one exists: recovery scans only the last.
        with self.storage.files.pinned(part.segment.path) as file:
            self._sync(file)
        write_epochs(self.storage.fs, self.directory, self.epochs, sync=True)
        write_index(self.storage.fs, self.directory, part.full_index(), sync=True)

    def _sync(self, file: int) -> None:
        try:
            self.storage.fs.fdatasync(file)
        except OSError:
            # The kernel may have dropped the dirty pages: a second fdatasync proves nothing.
            self.sync_failed = True
            raise


class Checkpoint:
    """Makes the next start short: data synced, epochs and the active segment's index written."""

    __slots__ = (
        "closing",
        "cut",
        "directory",
        "end_offset",
        "epochs",
        "index",
        "segment",
        "storage",
        "sync",
        "sync_failed",
        "sync_names",
    )

    def __init__(
        self, storage: Storage, directory: str, end_offset: int, segment: Segment | None
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.end_offset = end_offset
        self.segment = segment
        self.index: SegmentIndex | None = None
        self.epochs: list[tuple[int, int]] | None = None
        self.sync = True
        self.closing = False
        self.cut = False
        """True where the log was cut once: its recovery limit moves along."""
        self.sync_failed = False
        self.sync_names = False
        """True where an operation failed: nobody knows which of its names are durable."""

    def execute(self) -> None:
        # When closing, the small files are not synced: torn ones are noticed and rebuilt.
        durable = not self.closing
        if self.segment is not None and self.sync:
            with self.storage.files.pinned(self.segment.path) as file:
                self.sync_failed = True
                self.storage.fs.fdatasync(file)
                self.sync_failed = False
        if self.sync_names:
            self.storage.fs.fsync_dir(self.directory)
        if self.epochs is not None:
            write_epochs(self.storage.fs, self.directory, self.epochs, sync=durable)
        if self.index is not None:
            write_index(self.storage.fs, self.directory, self.index, sync=durable)
        if self.cut:
            write_recovery_limit(self.storage.fs, self.directory, self.end_offset)


class StartAdvance:
    """DeleteRecords: the new log start is on disk before anybody is told."""

    __slots__ = ("directory", "start_offset", "storage")

    def __init__(self, storage: Storage, directory: str, start_offset: int) -> None:
        self.storage = storage
        self.directory = directory
        self.start_offset = start_offset

    def execute(self) -> None:
        write_log_start(self.storage.fs, self.directory, self.start_offset)


class Deletion:
    """Removes the oldest segments. The log has already let go of them."""

    __slots__ = (
        "directory",
        "persisted",
        "previous_start",
        "repair",
        "segments",
        "start_offset",
        "storage",
    )

    def __init__(
        self, storage: Storage, directory: str, segments: list[Segment], start_offset: int
    ) -> None:
        self.repair: Repair | None = None
        self.previous_start = start_offset
        self.storage = storage
        self.directory = directory
        self.segments = segments
        self.start_offset = start_offset
        self.persisted = False

    def execute(self) -> None:
        fs = self.storage.fs
        if self.repair is not None:
            self.repair.execute()
        # Once this is durable a restart removes the segments itself, whatever subset is left.
        write_log_start(fs, self.directory, self.start_offset)
        self.persisted = True
        for segment in self.segments:
            unlink_segment(self.storage, self.directory, segment.base_offset)
        for offset in snapshot_offsets(fs, self.directory):
            if offset < self.start_offset:
                unlink_if_present(fs, snapshot_path(self.directory, offset))
        fs.fsync_dir(self.directory)


class Truncation:
    """Cuts the log's end for a follower. The log already ends there in memory."""

    __slots__ = (
        "copy",
        "cut",
        "directory",
        "dropped",
        "end_offset",
        "repair",
        "size",
        "storage",
    )

    def __init__(self, storage: Storage, directory: str, end_offset: int) -> None:
        self.storage = storage
        self.directory = directory
        self.end_offset = end_offset
        self.dropped: list[Segment] = []
        self.repair: Repair | None = None
        self.cut: Segment | None = None
        self.size = 0
        self.copy = False

    def execute(self) -> None:
        fs = self.storage.fs
        if self.repair is not None:
            self.repair.execute()
        write_recovery_limit(fs, self.directory, self.end_offset)
        drop_cleaner_checkpoint(fs, self.directory)
        for segment in reversed(self.dropped):
            # The newest first, each durably: what is left never has a gap.
            unlink_segment(self.storage, self.directory, segment.base_offset)
            fs.fsync_dir(self.directory)
        for offset in snapshot_offsets(fs, self.directory):
            if offset > self.end_offset:
                unlink_if_present(fs, snapshot_path(self.directory, offset))
        if self.cut is None:
            fs.fsync_dir(self.directory)
            return
        # The index goes first: it must never describe bytes that were written after the cut.
        unlink_index(fs, self.directory, self.cut.base_offset)
        fs.fsync_dir(self.directory)
        self._shorten(self.cut)

    def _shorten(self, segment: Segment) -> None:
        if self.copy:
            # Slices of the file's map are on their way to a socket; touching them beyond the end
            # of the file would be SIGBUS, so the old file stays as it is under no name.
            fs = self.storage.fs
            with self.storage.files.pinned(segment.path) as file:
                copy_range(fs, file, 0, self.size, segment.path)
            self.storage.files.forget(segment.path)
            return
        with self.storage.files.pinned(segment.path) as file:
            self.storage.fs.truncate(file, self.size)
            self.storage.fs.fdatasync(file)


class Reset:
    """Drops everything and begins anew at another offset (a follower too far behind)."""

    __slots__ = ("directory", "dropped", "repair", "start_offset", "storage")

    def __init__(
        self, storage: Storage, directory: str, start_offset: int, dropped: list[Segment]
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.start_offset = start_offset
        self.dropped = dropped
        self.repair: Repair | None = None

    def execute(self) -> None:
        fs = self.storage.fs
        if self.repair is not None:
            self.repair.execute()
        write_recovery_limit(fs, self.directory, 0)
        drop_cleaner_checkpoint(fs, self.directory)
        for segment in reversed(self.dropped):
            unlink_segment(self.storage, self.directory, segment.base_offset)
            fs.fsync_dir(self.directory)
        for offset in snapshot_offsets(fs, self.directory):
            unlink_if_present(fs, snapshot_path(self.directory, offset))
        write_epochs(fs, self.directory, [], sync=True)
        # Last: an empty directory with a log start is an empty log that continues there.
        write_log_start(fs, self.directory, self.start_offset)


Operation = Write | Checkpoint | StartAdvance | Deletion | Truncation | Reset | Swap


def unlink_segment(storage: Storage, directory: str, base_offset: int) -> None:
    """Removes the three files of a segment, the log file first: an index alone means nothing."""
    segment = Segment(storage, directory, base_offset, 0, 0)
    storage.files.forget(segment.path)
    unlink_if_present(storage.fs, segment.path)
    unlink_index(storage.fs, directory, base_offset)


def write_recovery_limit(fs: FileSystem, directory: str, offset: int) -> None:
    """From here on the log is not known to be synced, whatever the node's file says. Durable."""
    path = join(directory, RECOVERY_LIMIT_FILE)
    write_lines(fs, path, RECOVERY_LIMIT_FILE, [str(offset)])


def read_recovery_limit(fs: FileSystem, directory: str) -> int | None:
    """The limit; None where the log was never cut. CorruptCheckpointError where it is damaged."""
    lines = read_lines(fs, join(directory, RECOVERY_LIMIT_FILE), RECOVERY_LIMIT_FILE)
    return int(lines[0]) if lines else None


def write_log_start(fs: FileSystem, directory: str, start_offset: int) -> None:
    """Makes the log start durable."""
    write_lines(fs, join(directory, LOG_START_FILE), LOG_START_FILE, [str(start_offset)])


def read_log_start(fs: FileSystem, directory: str) -> int | None:
    """The durable log start; None where it never moved. CorruptCheckpointError where damaged."""
    lines = read_lines(fs, join(directory, LOG_START_FILE), LOG_START_FILE)
    return int(lines[0]) if lines else None
