"""The files of a cleaning: sealed segments read batch by batch, and the `.cleaned` file."""

from collections.abc import Iterator

from chronik.storage.compaction_plan import Source
from chronik.storage.compaction_swap import CLEANED_SUFFIX
from chronik.storage.fs import FileSystem, read_exactly, unlink_if_present, write_all
from chronik.storage.index import SegmentIndex
from chronik.storage.segment import segment_path, span_of
from chronik.wire.records import HEADER_SIZE, BatchHeader, Buffer, batch_crc, read_header

READ_BYTES = 1024 * 1024
WRITE_BYTES = 1024 * 1024
SYNC_BYTES = 8 * 1024 * 1024
"""Written between two syncs: one sync of a whole segment would hold up those of the writers."""


class DamagedBatchError(ValueError):
    """A batch is not as it was written: the log is left as it is rather than cleaned."""


def batches(fs: FileSystem, source: Source) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of each batch, its CRC checked.

    Read, not mapped: a segment that is cut meanwhile must not end the process with SIGBUS.
    """
    file = fs.open(source.path)
    try:
        yield from _read(fs, file, source)
    finally:
        fs.close(file)


def _read(
    fs: FileSystem, file: int, source: Source
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    window, start, position = memoryview(b""), 0, 0
    while position < source.size:
        at, needed = position - start, HEADER_SIZE
        header = read_header(window, at) if len(window) - at >= HEADER_SIZE else None
        if header is not None:
            needed = header.size
        if header is None or len(window) - at < needed:
            size = min(max(READ_BYTES, needed), source.size - position)
            window, start = memoryview(read_exactly(fs, file, size, position)), position
            if len(window) < needed:
                raise DamagedBatchError(f"{source.path}: torn batch at {position}")
            continue
        batch = window[at : at + needed]
        if needed < HEADER_SIZE or batch_crc(batch) != header.crc:
            raise damaged(source, header, "wrong size or CRC")
        yield position, header, batch
        position += needed


def damaged(source: Source, header: BatchHeader, why: str) -> DamagedBatchError:
    """The error that names the batch."""
    return DamagedBatchError(f"{source.path}: batch at offset {header.base_offset}: {why}")


class Output:
    """The `.cleaned` file that is being written, and its index."""

    def __init__(self, fs: FileSystem, directory: str, base_offset: int) -> None:
        self._fs = fs
        self._path = segment_path(directory, base_offset) + CLEANED_SUFFIX
        self.index = SegmentIndex(base_offset)
        self._pending: list[Buffer] = []
        self._written = 0
        self._synced = 0
        unlink_if_present(fs, self._path)
        self._file: int | None = fs.create(self._path)

    def add(self, batch: Buffer, interval: int) -> None:
        """Appends one batch."""
        self.index.add(span_of(self.index.log_size, read_header(batch)), interval)
        self._pending.append(batch)
        if self.index.log_size - self._written >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        assert self._file is not None
        write_all(self._fs, self._file, self._pending, self._written)
        self._pending, self._written = [], self.index.log_size
        if self._written - self._synced >= SYNC_BYTES:
            self._sync()

    def _sync(self) -> None:
        assert self._file is not None
        self._fs.fdatasync(self._file)
        self._synced = self._written

    def finish(self) -> None:
        """All of it is on the disk."""
        self._write()
        self._sync()
        self._close()

    def discard(self) -> None:
        """The file is not needed."""
        self._close()
        unlink_if_present(self._fs, self._path)

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self._fs.close(file)
