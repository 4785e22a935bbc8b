"""The seam to the disk: everything this room does to files goes through `FileSystem`.

Errors stay `OSError`. Handles are plain numbers; `sim.disk` implements the same protocol in memory
and loses what was not synced.
"""

import mmap
import os
from collections.abc import Sequence
from typing import Protocol

from chronik.storage.volume import open_volume
from chronik.wire.records import Buffer

IOV_MAX = 1024
"""Buffers one pwritev takes (POSIX limits.h); longer lists are written in several calls."""
WRITE_BYTES_MAX = 1024 * 1024
"""Bytes one call writes. For longer ones the kernel takes page cache in pieces of 2 MiB, which on a
virtual machine the host has to provide first, at many times the price of the copy."""
TEMPORARY_SUFFIX = ".tmp"
COPY_BYTES = 1024 * 1024


class Volume(Protocol):
    """The file system that holds a directory, to be synced as a whole."""

    def sync(self, paths: Sequence[str]) -> None:
        """Returns when all that was written to these files since it was opened is on the disk.

        OSError where it may not be, or where one of the files is on another file system: then
        nothing is known, and each has to be synced on its own, which says what it met.
        """

    def close(self) -> None:
        """Releases the handle."""


class FileSystem(Protocol):
    """What the storage room needs of a disk."""

    def open(self, path: str) -> int:
        """Opens an existing file for reading and writing."""

    def create(self, path: str) -> int:
        """Creates a file; FileExistsError where one is, so that nothing is ever overwritten."""

    def close(self, file: int) -> None:
        """Releases the handle; maps of the file stay valid."""

    def pwritev(self, file: int, buffers: Sequence[Buffer], position: int) -> int:
        """Writes at most IOV_MAX buffers; may write less than asked and says how much."""

    def pread(self, file: int, size: int, position: int) -> bytes:
        """Reads up to `size` bytes; less only at the end of the file."""

    def map(self, file: int, length: int) -> mmap.mmap:
        """The first `length` (> 0) bytes of the file, read-only."""

    def fdatasync(self, file: int) -> None:
        """Returns when the file's bytes and size are on the disk."""

    def truncate(self, file: int, size: int) -> None:
        """Cuts the file (or grows it with zeros)."""

    def rename(self, old: str, new: str) -> None:
        """Replaces `new` atomically; durable after `fsync_dir`."""

    def unlink(self, path: str) -> None:
        """Removes a file's name; open maps of it stay readable."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, in no order."""

    def mkdir(self, path: str) -> None:
        """Creates a directory; durable after `fsync_dir` of its parent."""

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""

    def fsync_dir(self, path: str) -> None:
        """Returns when the names in the directory are on the disk."""

    def size(self, path: str) -> int:
        """Bytes in the file of that name."""

    def open_volume(self, directory: str) -> Volume | None:
        """To sync many files at once; opened before they are written. None where it can't be."""


class RealFileSystem:
    """The operating system's files (Linux)."""

    __slots__ = ()

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def create(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def close(self, file: int) -> None:
        os.close(file)

    def pwritev(self, file: int, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(file, buffers, position)

    def pread(self, file: int, size: int, position: int) -> bytes:
        return os.pread(file, size, position)

    def map(self, file: int, length: int) -> mmap.mmap:
        return mmap.mmap(file, length, access=mmap.ACCESS_READ)

    def fdatasync(self, file: int) -> None:
        os.fdatasync(file)

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def open_volume(self, directory: str) -> Volume | None:
        # One that was derived to see or refuse every sync has to see every one.
        return open_volume(directory) if type(self) is RealFileSystem else None


def write_all(fs: FileSystem, file: int, buffers: Sequence[Buffer], position: int) -> None:
    """Writes every byte: in turns of IOV_MAX buffers and WRITE_BYTES_MAX, short ones continued."""
    size = sum(map(len, buffers))
    if len(buffers) <= IOV_MAX and size <= WRITE_BYTES_MAX:
        written = fs.pwritev(file, buffers, position)
        if written == size:
            return
    pending = [
        memoryview(buffer)[start : start + WRITE_BYTES_MAX]
        for buffer in buffers
        for start in range(0, len(buffer), WRITE_BYTES_MAX)
    ]
    first = 0
    while first < len(pending):
        written = fs.pwritev(file, pending[first : _turn_end(pending, first)], position)
        assert written > 0, "pwritev wrote nothing and raised nothing"
        position += written
        while first < len(pending) and written >= len(pending[first]):
            written -= len(pending[first])
            first += 1
        if written:
            pending[first] = pending[first][written:]


def _turn_end(pending: Sequence[memoryview], first: int) -> int:
    """Where the buffers end that one call takes, beginning with the first: at least that one."""
    room = WRITE_BYTES_MAX - len(pending[first])
    end = first + 1
    last = min(len(pending), first + IOV_MAX)
    while end < last and len(pending[end]) <= room:
        room -= len(pending[end])
        end += 1
    return end


def read_whole(fs: FileSystem, path: str, size_max: int | None = None) -> bytes:
    """The file's bytes (the first `size_max` of them); FileNotFoundError where there is none."""
    size = fs.size(path)
    file = fs.open(path)
    try:
        return read_exactly(fs, file, size if size_max is None else min(size, size_max), 0)
    finally:
        fs.close(file)


def read_exactly(fs: FileSystem, file: int, size: int, position: int) -> bytes:
    """`size` bytes, or fewer at the end of the file."""
    data = fs.pread(file, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]
    have = len(data)
    while have < size and (data := fs.pread(file, size - have, position + have)):
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def write_atomically(
    fs: FileSystem, path: str, buffers: Sequence[Buffer], *, sync: bool = True
) -> None:
    """The file has its old bytes or its new ones, never a mixture.

    With `sync` the new ones are durable on return. Without, a power cut may leave an empty or torn
    file: only for files that say themselves whether they are whole.
    """
    temporary = path + TEMPORARY_SUFFIX
    unlink_if_present(fs, temporary)
    file = fs.create(temporary)
    try:
        write_all(fs, file, buffers, 0)
        if sync:
            fs.fdatasync(file)
    finally:
        fs.close(file)
    fs.rename(temporary, path)
    if sync:
        fs.fsync_dir(parent(path))


def copy_range(fs: FileSystem, file: int, start: int, end: int, path: str) -> None:
    """Bytes [start, end) of an open file become the file `path`, durably."""
    temporary = path + TEMPORARY_SUFFIX
    unlink_if_present(fs, temporary)
    copy = fs.create(temporary)
    try:
        for position in range(start, end, COPY_BYTES):
            chunk = read_exactly(fs, file, min(COPY_BYTES, end - position), position)
            write_all(fs, copy, [chunk], position - start)
        fs.fdatasync(copy)
    finally:
        fs.close(copy)
    fs.rename(temporary, path)
    fs.fsync_dir(parent(path))


def unlink_if_present(fs: FileSystem, path: str) -> bool:
    """Removes the file; False where there was none."""
    try:
        fs.unlink(path)
    except FileNotFoundError:
        return False
    return True


def join(directory: str, name: str) -> str:
    """A path of this room: names come from offsets and checked topic names, never from a wire."""
    return f"{directory}/{name}"


def parent(path: str) -> str:
    """The directory that holds `path`."""
    head, _, _ = path.rpartition("/")
    return head or "/"
