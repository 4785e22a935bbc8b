"""One segment: a file of plain concatenated record batches, and how to find a batch in it.

`00000000000000000042.log` begins with the batch of base offset 42 (or a later one, where there is
a gap). Its `.index` and `.timeindex` lie next to it; both can be built again from the log file.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from chronik.model.limits import SEALED_INDEX_BYTES_MAX
from chronik.storage.fs import FileSystem, join, read_whole, unlink_if_present, write_atomically
from chronik.storage.index import HEADER_SIZE as INDEX_HEADER_SIZE
from chronik.storage.index import SegmentIndex, Span, Summary, decode_header
from chronik.storage.open_files import OpenFiles
from chronik.wire.records import HEADER_SIZE, BatchHeader, read_header

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
HEADER_WINDOW_BYTES = 4096
"""Read at once when batch headers are walked: many small batches, or one header of a large one."""
_BASE_OFFSET = attrgetter("base_offset")


class LogConfig(NamedTuple):
    """The topic's configuration as far as the log is concerned, with Kafka's defaults."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 * 1024 * 1024


class Storage:
    """What all logs of a node share: the disk, the open files, the indexes of sealed segments."""

    __slots__ = ("_index_bytes", "_indexes", "files", "fs")

    def __init__(self, fs: FileSystem, files: OpenFiles | None = None) -> None:
        self.fs = fs
        self.files = files if files is not None else OpenFiles(fs)
        self._indexes: OrderedDict[str, SegmentIndex] = OrderedDict()
        self._index_bytes = 0

    def cached_index(self, path: str) -> SegmentIndex | None:
        """The index of a sealed segment, if it was used lately."""
        index = self._indexes.get(path)
        if index is not None:
            self._indexes.move_to_end(path)
        return index

    def cache_index(self, path: str, index: SegmentIndex) -> None:
        """Keeps the index; the least recently used ones make room."""
        self.forget_index(path)
        self._indexes[path] = index
        self._index_bytes += index.memory
        while self._index_bytes > SEALED_INDEX_BYTES_MAX and len(self._indexes) > 1:
            self.forget_index(next(iter(self._indexes)))

    def forget_index(self, path: str) -> None:
        """Drops the index of a segment that is gone or cut."""
        index = self._indexes.pop(path, None)
        if index is not None:
            self._index_bytes -= index.memory

    def forget_indexes(self, segments: "Iterable[Segment]") -> None:
        """Drops the indexes of segments that are gone."""
        for segment in segments:
            self.forget_index(segment.path)


class Read(NamedTuple):
    """Bytes of a log from the batch that contains the asked offset on; the last may be partial.

    Who asked for whole batches gets no part of another one if there is an index entry between.
    """

    slices: list[memoryview]
    size: int
    base_offset: int
    """Base offset of the first batch; the asked offset where nothing is there to read."""
    segment_base_offset: int
    position: int
    is_all: bool = True
    """False where more could be read: a limit of bytes ended it, or its segment."""


def segment_path(directory: str, base_offset: int) -> str:
    """Where the segment's batches are."""
    return f"{directory}/{base_offset:020d}{LOG_SUFFIX}"


class Segment:
    """One segment of a log. `size` is what is applied: bytes beyond it are nobody's yet."""

    __slots__ = (
        "_summary",
        "base_offset",
        "directory",
        "index",
        "interval",
        "path",
        "sealed",
        "size",
        "storage",
    )

    def __init__(
        self, storage: Storage, directory: str, base_offset: int, size: int, interval: int
    ) -> None:
        self.storage = storage
        self.directory = directory
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset)
        self.size = size
        self.interval = interval
        self.sealed = False
        self.index: SegmentIndex | None = None
        self._summary: Summary | None = None

    @property
    def index_paths(self) -> tuple[str, str]:
        """The offset index and the time index."""
        return index_paths(self.directory, self.base_offset)

    def seal(self) -> None:
        """No more appends: the index moves to the shared cache, from where it may be dropped."""
        self.sealed = True
        if self.index is not None:
            self._summary = self.index.summary
            self.storage.cache_index(self.path, self.index)
            self.index = None

    def replace(self, size: int, index: SegmentIndex) -> None:
        """The segment after a truncation, with the index that fits; it takes appends again."""
        assert index.log_size == size
        self.size = size
        self.sealed = False
        self.index = index
        self._summary = None
        self.storage.forget_index(self.path)

    def append(self, spans: list[Span]) -> None:
        """Takes note of batches that are in the file now."""
        index = self.index if self.index is not None else self.loaded_index()
        self._summary = None
        for span in spans:
            index.add(span, self.interval)
        self.size = index.log_size

    def summary(self) -> Summary:
        """End and timestamps, from the header of the index file if nothing more is in memory."""
        if self.index is not None:
            return self.index.summary
        if self._summary is None:
            summary = read_summary(self.storage.fs, self.directory, self.base_offset)
            if summary is None or summary.log_size != self.size:
                summary = self.loaded_index().summary
            self._summary = summary
        return self._summary

    def trust(self, summary: Summary) -> None:
        """Recovery found the index file to describe all of the segment."""
        assert summary.log_size == self.size
        self._summary = summary

    def loaded_index(self) -> SegmentIndex:
        """The index: from memory, from its files, or built from the log where these are no good."""
        index = self.index if self.index is not None else self.storage.cached_index(self.path)
        if index is not None:
            return index
        index = self._read_index()
        if index.log_size != self.size:
            self._extend(index)
        if self.sealed:
            self.storage.cache_index(self.path, index)
        else:
            self.index = index
        return index

    def _read_index(self) -> SegmentIndex:
        index = read_index(self.storage.fs, self.directory, self.base_offset)
        if index is None or index.log_size > self.size:
            return SegmentIndex(self.base_offset)
        return index

    def _extend(self, index: SegmentIndex, end: int | None = None) -> None:
        for position, header in self.headers(index.log_size, end):
            index.add(span_of(position, header), self.interval)

    def index_cut_at(self, position: int) -> SegmentIndex:
        """The index this segment has once it ends at `position`. Reads the log file."""
        index = self.loaded_index().cut(position)
        self._extend(index, position)
        assert index.log_size == position, "a segment is cut between two batches"
        return index

    def headers(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Batches from `position` (where one begins) on."""
        end = self.size if end is None else end
        files, path = self.storage.files, self.path
        window = memoryview(b"")
        start = position
        while position + HEADER_SIZE <= end:
            if position + HEADER_SIZE > start + len(window):
                start, stop = position, min(position + HEADER_WINDOW_BYTES, end)
                window = files.peek(path, start, stop, self.size, sealed=self.sealed)
            header = read_header(window, position - start)
            if header.size < HEADER_SIZE or position + header.size > end:
                return
            yield position, header
            position += header.size

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The batch that contains `offset`, or the next one where the log has a gap."""
        for position, header in self.headers(self.loaded_index().position_of(offset)):
            if header.last_offset >= offset:
                return position, header
        return None

    def position_at(self, end_offset: int) -> int:
        """Where the batches end that lie wholly below `end_offset`."""
        found = self.locate(end_offset)
        return self.size if found is None else found[0]

    def batch(self, position: int, header: BatchHeader) -> memoryview:
        """The bytes of one whole batch."""
        return self.storage.files.peek(
            self.path, position, position + header.size, self.size, sealed=self.sealed
        )

    def read(
        self,
        offset: int,
        max_bytes: int,
        end_offset: int | None,
        *,
        at_least_one_batch: bool,
        whole: bool = False,
    ) -> Read | None:
        """See `Log.read`; None where this segment holds nothing at or after `offset`.

        `end_offset` is None where all of the segment may be read.
        """
        end = self.size if end_offset is None else self.position_at(end_offset)
        index = self.loaded_index()
        if (start := index.start_of(offset)) is not None:
            stop = min(start + max_bytes, end)
            if whole and stop < end:
                stop = index.batch_start(stop)
            if stop - start >= HEADER_SIZE and (read := self._read_at(start, stop, end, offset)):
                return read
        found = self.locate(offset)
        if found is None:
            return None
        position, header = found
        stop = position + max_bytes
        if whole and stop < end:
            stop = self._end_of_whole(index, position, header, stop)
        if at_least_one_batch:
            stop = max(stop, position + header.size)
        stop = max(position, min(stop, end))
        slices = self.storage.files.view(self.path, position, stop, self.size, sealed=self.sealed)
        size, is_all = stop - position, stop == end
        return Read(slices, size, header.base_offset, self.base_offset, position, is_all)

    def _end_of_whole(
        self, index: SegmentIndex, position: int, header: BatchHeader, stop: int
    ) -> int:
        """The last known end of a batch up to `stop`; `position` where not even one is whole."""
        if position + header.size > stop:
            return position
        start = index.batch_start(stop)
        return start if start > position else stop

    def _read_at(self, position: int, stop: int, end: int, offset: int) -> Read | None:
        """The batch that begins there and what follows, with one look at the file.

        None where that is not it: the offset is in a later batch, or the first one is cut.
        """
        slices = self.storage.files.view(self.path, position, stop, self.size, sealed=self.sealed)
        if len(slices[0]) < HEADER_SIZE:
            return None
        header = read_header(slices[0])
        if header.last_offset < offset or position + header.size > stop:
            return None
        size, is_all = stop - position, stop == end
        return Read(slices, size, header.base_offset, self.base_offset, position, is_all)


def span_of(position: int, header: BatchHeader) -> Span:
    """What the index needs of a batch."""
    return Span(header.base_offset, header.last_offset, header.max_timestamp, position, header.size)


def segment_number(segments: list[Segment], offset: int) -> int:
    """The one of a log's segments whose range holds `offset`; 0 where there is none."""
    return max(bisect_right(segments, offset, key=_BASE_OFFSET) - 1, 0)


def index_paths(directory: str, base_offset: int) -> tuple[str, str]:
    """The offset index and the time index of a segment."""
    stem = join(directory, f"{base_offset:020d}")
    return stem + INDEX_SUFFIX, stem + TIME_INDEX_SUFFIX


def read_summary(fs: FileSystem, directory: str, base_offset: int) -> Summary | None:
    """What the offset index file says of its segment; None where it is missing or damaged."""
    path, _ = index_paths(directory, base_offset)
    try:
        file = decode_header(read_whole(fs, path, INDEX_HEADER_SIZE))
    except FileNotFoundError:
        return None
    if file is None or file.summary.base_offset != base_offset:
        return None
    return file.summary


def read_index(fs: FileSystem, directory: str, base_offset: int) -> SegmentIndex | None:
    """The index in the files; None where one is missing, damaged or another segment's."""
    path, time_path = index_paths(directory, base_offset)
    try:
        index = SegmentIndex.decode(read_whole(fs, path), read_whole(fs, time_path))
    except FileNotFoundError:
        return None
    return index if index is not None and index.base_offset == base_offset else None


def write_index(fs: FileSystem, directory: str, index: SegmentIndex, *, sync: bool) -> None:
    """Writes both files, the time index first: `read_summary` trusts the offset index."""
    path, time_path = index_paths(directory, index.base_offset)
    offsets, times = index.encode()
    write_atomically(fs, time_path, [times], sync=sync)
    write_atomically(fs, path, [offsets], sync=sync)


def unlink_index(fs: FileSystem, directory: str, base_offset: int) -> None:
    """Removes both files. Durable after the directory is synced."""
    for path in index_paths(directory, base_offset):
        unlink_if_present(fs, path)
