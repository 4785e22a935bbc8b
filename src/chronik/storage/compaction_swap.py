"""Puts a cleaned segment in the place of those it was made from, so that a crash costs nothing.

Kafka's protocol. `<base>.log.cleaned` is written and synced while the log goes on. Then:

1. it is renamed to `<base>.log.swap`, durably: from here on a restart finishes what is left;
2. the old segments but the first, and all their indexes, are removed, durably;
3. `<base>.log.swap` replaces the first old segment, durably;
4. the new index is written; without it the next start builds it.

A restart removes `.cleaned` files and goes through 2 and 3 for each `.swap` file. The last batch of
the old segments is always kept, if need be without records: so the new file says how far it goes.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from chronik.storage.checkpoints import read_lines, write_lines
from chronik.storage.fs import FileSystem, join, read_exactly, unlink_if_present
from chronik.storage.index import SegmentIndex
from chronik.storage.segment import (
    LOG_SUFFIX,
    Segment,
    Storage,
    segment_path,
    unlink_index,
    write_index,
)
from chronik.wire.records import HEADER_SIZE, read_header

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
CLEANER_CHECKPOINT_FILE = "cleaner-checkpoint"
"""Up to which offset the log is clean. It lies in the log's directory and goes with it."""


class Cleaned(NamedTuple):
    """A cleaned segment in its `.cleaned` file, synced, and the segments it stands for."""

    old: tuple[Segment, ...]
    new_index: SegmentIndex | None
    """None where nothing is to be replaced: there is no file either."""
    truncations: int
    """The log's count when the old segments were chosen; another one means other bytes."""
    first_dirty_offset: int | None
    """The log is clean up to here afterwards; None while segments before it are to be cleaned."""

    def is_within(self, segments: Sequence[Segment]) -> bool:
        """True where the log still has all the old segments."""
        present = {id(segment) for segment in segments}
        return all(id(segment) in present for segment in self.old)


class Swap:
    """The operation. `execute` in a disk thread, then `Log.apply` or `Log.abort`, as the others."""

    __slots__ = ("_old_storage", "_shared", "cleaned", "directory", "interval", "torn")

    def __init__(self, storage: Storage, directory: str, cleaned: Cleaned, interval: int) -> None:
        self.directory = directory
        self.cleaned = cleaned
        self.interval = interval
        self.torn = False
        """True where only recovery can say what is on the disk."""
        self._shared = storage
        self._old_storage = Storage(storage.fs)
        try:
            self._hold_old()
        except OSError:
            self.release_old()
            raise

    def _hold_old(self) -> None:
        """Old segments are read from maps of their own from now on: their names change hands."""
        for segment in self._replaced:
            segment.index = segment.loaded_index()
            if segment.size:
                files = self._old_storage.files
                files.view(segment.path, 0, segment.size, segment.size, sealed=True)
            segment.storage = self._old_storage

    def release_old(self) -> None:
        """The old segments stay after all."""
        for segment in self._replaced:
            segment.storage = self._shared
            segment.seal()

    @property
    def _replaced(self) -> tuple[Segment, ...]:
        return self.cleaned.old if self.cleaned.new_index is not None else ()

    def execute(self) -> None:
        if self.cleaned.new_index is not None:
            self._replace(self.cleaned.new_index)
        if self.cleaned.first_dirty_offset is not None:
            # Without it the next start cleans once more than needed.
            with suppress(OSError):
                write_cleaner_checkpoint(
                    self._shared.fs, self.directory, self.cleaned.first_dirty_offset
                )

    def _replace(self, index: SegmentIndex) -> None:
        fs, base_offset = self._shared.fs, index.base_offset
        path = segment_path(self.directory, base_offset)
        try:
            fs.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
            fs.fsync_dir(self.directory)
        except OSError:
            self._undo(path)
            raise
        self.torn = True
        others = [segment.base_offset for segment in self.cleaned.old[1:]]
        finish_swap(fs, self.directory, base_offset, others)
        self.torn = False
        with suppress(OSError):
            # Not synced: a torn index is noticed, and the old one is durably gone.
            write_index(fs, self.directory, index, sync=False)

    def _undo(self, path: str) -> None:
        fs = self._shared.fs
        self.torn = True
        for suffix in (SWAP_SUFFIX, CLEANED_SUFFIX):
            unlink_if_present(fs, path + suffix)
        fs.fsync_dir(self.directory)
        self.torn = False

    def replaced_in(self, segments: list[Segment]) -> list[Segment]:
        """The log's segments once the operation was executed.

        A new list: whoever walks the old one in a thread finds it and its segments unchanged.
        """
        index = self.cleaned.new_index
        if index is None:
            return segments
        gone = {id(segment) for segment in self.cleaned.old[1:]}
        new, first = self._new_segment(index), self.cleaned.old[0]
        kept = (segment for segment in segments if id(segment) not in gone)
        return [new if segment is first else segment for segment in kept]

    def _new_segment(self, index: SegmentIndex) -> Segment:
        shared = self._shared
        for old in self.cleaned.old:
            shared.files.forget(old.path)
            shared.forget_index(old.path)
        segment = Segment(shared, self.directory, index.base_offset, index.log_size, self.interval)
        segment.index = index
        segment.seal()
        return segment


def discard_cleaned(fs: FileSystem, directory: str, cleaned: Cleaned) -> None:
    """Removes the file of a cleaning that is dropped. Blocks."""
    if cleaned.new_index is not None:
        path = segment_path(directory, cleaned.new_index.base_offset)
        unlink_if_present(fs, path + CLEANED_SUFFIX)


def finish_swap(fs: FileSystem, directory: str, base_offset: int, others: Iterable[int]) -> None:
    """Steps 2 and 3 of the module's list; they may be taken again after any part of them."""
    for other in others:
        unlink_if_present(fs, segment_path(directory, other))
        unlink_index(fs, directory, other)
    unlink_index(fs, directory, base_offset)
    # Else the new segment could be found next to old ones that it contains.
    fs.fsync_dir(directory)
    path = segment_path(directory, base_offset)
    fs.rename(path + SWAP_SUFFIX, path)
    fs.fsync_dir(directory)


def settle_swaps(fs: FileSystem, directory: str, names: Iterable[str]) -> list[str]:
    """What recovery does with a cleaning that a crash interrupted; the files it dealt with."""
    settled = [name for name in names if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]
    for name in settled:
        if name.endswith(CLEANED_SUFFIX):
            unlink_if_present(fs, join(directory, name))
    for name in settled:
        if name.endswith(SWAP_SUFFIX):
            base_offset = int(name.partition(".")[0])
            end_offset = _end_offset(fs, join(directory, name), base_offset)
            inside = [base for base in _bases(names) if base_offset < base < end_offset]
            finish_swap(fs, directory, base_offset, inside)
    return settled


def _bases(names: Iterable[str]) -> list[int]:
    stems = (name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    return [int(stem) for stem in stems if stem.isdigit()]


def _end_offset(fs: FileSystem, path: str, base_offset: int) -> int:
    size = fs.size(path)
    file = fs.open(path)
    position, end_offset = 0, base_offset
    try:
        while position + HEADER_SIZE <= size:
            header = read_header(read_exactly(fs, file, HEADER_SIZE, position))
            if header.size < HEADER_SIZE:
                break
            position, end_offset = position + header.size, header.next_offset
    finally:
        fs.close(file)
    return end_offset


def write_cleaner_checkpoint(fs: FileSystem, directory: str, first_dirty_offset: int) -> None:
    """Remembers how far the log is clean. Durable."""
    path = join(directory, CLEANER_CHECKPOINT_FILE)
    write_lines(fs, path, CLEANER_CHECKPOINT_FILE, [str(first_dirty_offset)])


def read_cleaner_checkpoint(fs: FileSystem, directory: str) -> int:
    """The first dirty offset; 0 where the log was never cleaned. May be CorruptCheckpointError."""
    path = join(directory, CLEANER_CHECKPOINT_FILE)
    lines = read_lines(fs, path, CLEANER_CHECKPOINT_FILE)
    return int(lines[0]) if lines else 0


def drop_cleaner_checkpoint(fs: FileSystem, directory: str) -> None:
    """The log was cut: other records may follow below the checkpoint."""
    unlink_if_present(fs, join(directory, CLEANER_CHECKPOINT_FILE))
