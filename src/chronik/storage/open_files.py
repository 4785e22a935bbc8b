"""The node's open segment files and their maps, bounded: the least recently used goes first.

A disk thread may write a file while the event loop reads it and a third party evicts others, so
handles in use are pinned and the table is guarded by a lock. A map that is dropped while slices of
it are still on their way to a socket stays alive until they are gone; `has_readers` knows, because
cutting a mapped file short would end the process with SIGBUS when such a slice is touched.
"""

import mmap
import threading
from collections import OrderedDict
from contextlib import AbstractContextManager

from chronik.model import limits
from chronik.storage.fs import FileSystem, read_exactly

REMAP_BYTES = 1024 * 1024
"""The active segment's tail is copied until it has grown by this much; then it is mapped anew."""


class _Entry:
    """A file of the table; as a context it is the descriptor, unpinned at the end."""

    __slots__ = ("file", "lock", "map", "pins")

    def __init__(self, lock: threading.Lock) -> None:
        self.file: int | None = None
        self.lock = lock
        self.map: mmap.mmap | None = None
        self.pins = 0

    def __enter__(self) -> int:
        assert self.file is not None
        return self.file

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.pins -= 1

    @property
    def descriptors(self) -> int:
        # CPython's mmap keeps a duplicate of the descriptor it was made from.
        return (self.file is not None) + (self.map is not None)


class OpenFiles:
    """Descriptors and maps by path."""

    __slots__ = ("_capacity", "_descriptors", "_entries", "_held", "_lock", "fs")

    def __init__(self, fs: FileSystem, capacity: int = limits.OPEN_SEGMENT_FILES_MAX) -> None:
        self.fs = fs
        self._capacity = capacity
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._held: list[tuple[str, mmap.mmap]] = []
        self._descriptors = 0
        self._lock = threading.Lock()

    @property
    def descriptors(self) -> int:
        """Descriptors held at this moment, those of maps included."""
        return self._descriptors

    def pinned(self, path: str, *, create: bool = False) -> AbstractContextManager[int]:
        """The open file, which nobody closes while it is used. Pinned from this call on."""
        with self._lock:
            entry = self._entry(path)
            entry.pins += 1
            if entry.file is not None:
                return entry
            try:
                entry.file = self.fs.create(path) if create else self.fs.open(path)
                self._descriptors += 1
                self._evict()
            except OSError:
                entry.pins -= 1
                self._drop_if_empty(path, entry)
                raise
        return entry

    def view(self, path: str, start: int, end: int, size: int, *, sealed: bool) -> list[memoryview]:
        """Bytes [start, end) of a file whose first `size` bytes are good, without a copy if mapped.

        `sealed` says that the file grows no more and is worth a map whatever its size.
        """
        assert 0 <= start <= end <= size
        if start == end:
            return []
        with self._lock:
            mapped = self._map(path, end, size, sealed=sealed)
            length = len(mapped) if mapped is not None else 0
            slices = []
            if mapped is not None and start < length:
                slices.append(memoryview(mapped)[start : min(end, length)])
        if end > length:
            with self.pinned(path) as file:
                tail = max(start, length)
                slices.append(memoryview(read_exactly(self.fs, file, end - tail, tail)))
        return slices

    def peek(self, path: str, start: int, end: int, size: int, *, sealed: bool) -> memoryview:
        """As `view`, in one piece."""
        slices = self.view(path, start, end, size, sealed=sealed)
        return slices[0] if len(slices) == 1 else memoryview(b"".join(slices))

    def forget(self, path: str) -> None:
        """Closes what is open of a file that was removed, cut or replaced."""
        with self._lock:
            entry = self._entries.pop(path, None)
            if entry is not None:
                assert not entry.pins, "a file in use cannot be forgotten"
                self._close(path, entry)

    def has_readers(self, path: str) -> bool:
        """True while slices of the file's maps are alive. The current map is dropped."""
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None:
                self._retire_map(path, entry)
                self._drop_if_empty(path, entry)
            self._purge()
            return any(held == path for held, _ in self._held)

    def close(self) -> None:
        """Closes everything that is not pinned."""
        with self._lock:
            for path in [path for path, entry in self._entries.items() if not entry.pins]:
                self._close(path, self._entries.pop(path))

    def _entry(self, path: str) -> _Entry:
        entry = self._entries.get(path)
        if entry is None:
            entry = self._entries[path] = _Entry(self._lock)
        self._entries.move_to_end(path)
        return entry

    def _map(self, path: str, end: int, size: int, *, sealed: bool) -> mmap.mmap | None:
        entry = self._entries.get(path)
        current = entry.map if entry is not None else None
        length = len(current) if current is not None else 0
        if end <= length or (not sealed and size - length < REMAP_BYTES):
            if entry is not None:
                self._entries.move_to_end(path)
            return current
        return self._remap(path, size)

    def _remap(self, path: str, size: int) -> mmap.mmap:
        entry = self._entry(path)
        self._retire_map(path, entry)
        file = entry.file
        opened = file is None
        if file is None:
            file = self.fs.open(path)
        try:
            entry.map = self.fs.map(file, size)
        finally:
            if opened:
                # The map needs no descriptor besides its own.
                self.fs.close(file)
            self._drop_if_empty(path, entry)
        self._descriptors += 1
        self._evict()
        return entry.map

    def _evict(self) -> None:
        excess = self._descriptors - self._capacity
        if excess <= 0:
            return
        newest = next(reversed(self._entries))
        victims: list[str] = []
        for path, entry in self._entries.items():
            if not entry.pins and path != newest:
                victims.append(path)
                excess -= entry.descriptors
            if excess <= 0:
                break  # thousands may be open: only the oldest are looked at
        for path in victims:
            self._close(path, self._entries.pop(path))

    def _close(self, path: str, entry: _Entry) -> None:
        self._retire_map(path, entry)
        if entry.file is not None:
            self._descriptors -= 1
            file, entry.file = entry.file, None
            self.fs.close(file)

    def _retire_map(self, path: str, entry: _Entry) -> None:
        if entry.map is None:
            return
        retired, entry.map = entry.map, None
        self._descriptors -= 1
        self._held.append((path, retired))
        self._purge()

    def _purge(self) -> None:
        self._held = [held for held in self._held if not _try_close(held[1])]

    def _drop_if_empty(self, path: str, entry: _Entry) -> None:
        if not entry.pins and not entry.descriptors:
            self._entries.pop(path, None)


def _try_close(mapped: mmap.mmap) -> bool:
    try:
        mapped.close()
    except BufferError:
        return False
    return True
