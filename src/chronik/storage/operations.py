"""What is done to a log's files, step by step: the part that blocks and belongs in a disk thread.

An operation is prepared by the log (event loop, memory only), executed once, applied or aborted
by the log. The order of steps is the crash procedure: each comment says what a restart finds after
the step before. `docs/reference/storage-format.md` has the same as a table.
"""

from chronik.storage.checkpoints import read_lines, write_lines
from chronik.storage.compaction_swap import Swap, drop_cleaner_checkpoint
from chronik.storage.epochs import write_epochs
from chronik.storage.fs import FileSystem, copy_range, join, unlink_if_present
from chronik.storage.index import SegmentIndex
from chronik.storage.producer_snapshot import snapshot_offsets, snapshot_path
from chronik.storage.segment import Segment, Storage, unlink_index, write_index
from chronik.storage.write import Repair, Write, unlink_segment

LOG_START_FILE = "log-start-offset"
RECOVERY_LIMIT_FILE = "recovery-point-limit"
"""Written when a log is cut: the node's recovery points, written before, promise too much of it."""


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

    def plan_cut(self, segment: Segment) -> None:
        """Where the segment ends from now on, in memory; by the log, before it is executed."""
        found = segment.locate(self.end_offset)
        self.size = segment.size
        if found is not None:
            self.size = found[0]
            self.end_offset = min(self.end_offset, found[1].base_offset)
        if not self.size:
            return  # Nothing is left of the segment: it goes as a whole.
        segment.replace(self.size, segment.index_cut_at(self.size))
        self.cut = segment
        self.copy = self.storage.files.has_readers(segment.path)

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
