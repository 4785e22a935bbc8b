"""An append, as it happens on disk: written, then synced; and what puts a failed one right.

`Write.execute` copies the batches into the file, `Write.sync` makes them durable. In between they
may be shown to others (`Log.expose`), who may keep them: from then on they stay as they are, and a
sync that fails is tried again with the same bytes at the same place.
"""

from contextlib import AbstractContextManager

from chronik.storage.epochs import write_epochs
from chronik.storage.fs import unlink_if_present, write_all
from chronik.storage.index import SegmentIndex, Span
from chronik.storage.segment import Segment, Storage, unlink_index, write_index
from chronik.wire.records import Buffer


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
    """An append. `execute` may run in any thread, once; then `Log.apply` or `Log.abort`.

    Or in two steps: `execute` without a sync, `Log.expose`, then `sync`, as often as it takes.
    """

    __slots__ = (
        "base_offset",
        "directory",
        "end_offset",
        "epochs",
        "exposed",
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
        self.exposed = False
        """True once others may have read it: it is not taken back any more."""
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
        if self.is_plain:
            self._write(self.parts[0])
            if sync:
                self.sync()
            return
        if self.repair is not None:
            self.repair.execute()
        previous: Part | None = None
        for part in self.parts:
            if part.created and previous is not None:
                self._seal(previous)
            self._write(part)
            previous = part
        if sync and self.parts:
            self.sync()

    def sync(self) -> None:
        """Blocks. Earlier segments were synced when they were sealed, so this is the last one."""
        part = self.parts[-1]
        with self.storage.files.pinned(part.segment.path) as file:
            if self.sync_failed:
                # Pages that could not be written count as clean now: only new ones are synced.
                write_all(self.storage.fs, file, part.buffers, part.position)
            self._sync(file)
        self.sync_failed = False
        self.synced = True

    def last_file(self) -> AbstractContextManager[int]:
        """The file that `sync` is about, for somebody else to sync."""
        return self.storage.files.pinned(self.parts[-1].segment.path)

    def sync_ended(self, error: OSError | None) -> None:
        """Somebody else synced it, as `sync` does: where the bytes were in the page cache."""
        self.synced = error is None
        self.sync_failed = error is not None

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


def unlink_segment(storage: Storage, directory: str, base_offset: int) -> None:
    """Removes the three files of a segment, the log file first: an index alone means nothing."""
    segment = Segment(storage, directory, base_offset, 0, 0)
    storage.files.forget(segment.path)
    unlink_if_present(storage.fs, segment.path)
    unlink_index(storage.fs, directory, base_offset)
