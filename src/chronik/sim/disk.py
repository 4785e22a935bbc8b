"""A disk in memory that keeps only what was synced: a `storage.fs.FileSystem` for tests.

Every change waits in a list (`inodes.py`) until `fdatasync` (a file's bytes) or `fsync_dir` (a
directory's names) makes it durable, and `crash` keeps a random part of what waits. Calls can be
made to fail, the power to go, the disk to be full.
"""

import errno
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from chronik.sim.inodes import Change, Directory, File, Names, removal
from chronik.wire.records import Buffer

MUTATIONS = ("create", "pwritev", "truncate", "rename", "unlink", "mkdir", "rmdir")
SYNCS = ("fdatasync", "fsync_dir", "syncfs")


class PowerCutError(Exception):
    """The power is gone: no call works until `SimDisk.crash` says what is left."""


@dataclass(slots=True)
class _Fault:
    """Calls of that name (None: every change and sync) fail, after `after` of them have worked."""

    call: str | None
    error: int
    after: int
    times: int


class SimDisk:
    """See the module. `calls` counts calls by name, `bytes_read` what was read or mapped."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.bytes_read = 0
        self.capacity_bytes: int | None = None
        """Bytes of all files together; None is a disk without end."""
        self.power_cut_after: int | None = None
        """Changes and syncs that still work before the power goes."""
        self.forgets_failed_syncs = False
        """As Linux does: what a failed sync was to write is read as before, and never written."""
        self.mounts: set[str] = set()
        """Directories that are file systems of their own."""
        self.write_errors: Counter[str] = Counter()
        """By file system: writes that failed while nobody waited, or in a sync of the whole."""
        self._root = Directory()
        self._open: dict[int, File] = {}
        self._next_handle = 1
        self._faults: list[_Fault] = []

    # Faults.

    def fail(self, call: str | None, error: int, *, after: int = 0, times: int = 1) -> None:
        """Makes calls fail with that errno (ENOSPC, EROFS, EIO...)."""
        self._faults.append(_Fault(call, error, after, times))

    def heal(self) -> None:
        """No further failures; full disks have room again."""
        self._faults.clear()
        self.capacity_bytes = None

    def crash(self, rng: Random) -> None:
        """The power went and came back: what was synced is there, of the rest any part."""
        self._open.clear()
        self.heal()
        self.power_cut_after = None
        self._root.crash(rng)

    def corrupt(self, path: str, position: int, mask: int = 0x01) -> None:
        """Flips bits of one durable byte, as a bad sector or cable would."""
        file = self._file(path)
        file.sync()
        file.content[position] ^= mask
        file.durable[position] ^= mask

    def lose_written(self, path: str, error: int = errno.EIO) -> None:
        """As the kernel writes a file back by itself and fails: the next to sync it is told."""
        self._lose(self._file(path), self.mount_of(path), error)

    def contents(self, path: str) -> bytes:
        """A file's bytes, for a test to look at."""
        return bytes(self._file(path).content)

    @property
    def used_bytes(self) -> int:
        """Bytes of all files that have a name."""
        return self._root.used_bytes

    @property
    def open_handles(self) -> int:
        """Handles that were not closed."""
        return len(self._open)

    # The protocol.

    def open(self, path: str) -> int:
        self._count("open")
        return self._handle(self._file(path))

    def create(self, path: str) -> int:
        self._count("create")
        directory, name = self._parent(path)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        file = File()
        directory.change(lambda names: names.__setitem__(name, file))
        return self._handle(file)

    def close(self, file: int) -> None:
        self._count("close")
        del self._open[file]

    def pwritev(self, file: int, buffers: Sequence[Buffer], position: int) -> int:
        self._count("pwritev")
        inode = self._open[file]
        data = b"".join(buffers)
        room = self._room(inode, position)
        if data and room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = data[:room]
        inode.change(Change(position, data))
        return len(data)

    def pread(self, file: int, size: int, position: int) -> bytes:
        self._count("pread")
        data = bytes(self._open[file].content[position : position + size])
        self.bytes_read += len(data)
        return data

    def map(self, file: int, length: int) -> mmap.mmap:
        self._count("map")
        content = self._open[file].content
        assert 0 < length <= len(content), "a map beyond the file is SIGBUS"
        mapped = mmap.mmap(-1, length)
        mapped[:] = bytes(content[:length])
        self.bytes_read += length
        return mapped

    def fdatasync(self, file: int) -> None:
        try:
            self._count("fdatasync")
        except OSError:
            if self.forgets_failed_syncs:
                self._open[file].forget_writes()
            raise
        inode = self._open[file]
        if inode.unreported:
            failed, inode.unreported = inode.unreported, 0
            raise OSError(failed, os.strerror(failed))
        inode.sync()

    def truncate(self, file: int, size: int) -> None:
        self._count("truncate")
        self._open[file].change(Change(size, None))

    def rename(self, old: str, new: str) -> None:
        self._count("rename")
        directory, name = self._parent(old)
        target, new_name = self._parent(new)
        assert directory is target, "only within one directory"
        moved = self._lookup(old)

        def change(names: Names) -> None:
            names.pop(name, None)
            names[new_name] = moved

        directory.change(change)

    def unlink(self, path: str) -> None:
        self._count("unlink")
        self._file(path)
        directory, name = self._parent(path)
        directory.change(removal(name))

    def listdir(self, path: str) -> list[str]:
        self._count("listdir")
        return list(self._directory(path).names)

    def mkdir(self, path: str) -> None:
        self._count("mkdir")
        parent, name = self._parent(path)
        if name in parent.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        made = Directory()
        parent.change(lambda names: names.__setitem__(name, made))

    def rmdir(self, path: str) -> None:
        self._count("rmdir")
        if self._directory(path).names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        parent, name = self._parent(path)
        parent.change(removal(name))

    def fsync_dir(self, path: str) -> None:
        self._count("fsync_dir")
        self._directory(path).sync()

    def size(self, path: str) -> int:
        self._count("size")
        return len(self._file(path).content)

    def open_volume(self, directory: str) -> "SimVolume":
        self._directory(directory)
        return SimVolume(self, self.mount_of(directory))

    # For a volume.

    def mount_of(self, path: str) -> str:
        """The file system that holds it, by where it is mounted."""
        found = [one for one in self.mounts if path == one or path.startswith(one + "/")]
        return max(found, key=len, default="/")

    def sync_mount(self, mount: str) -> None:
        """One file after the other: where the power goes in between, the first ones are durable.

        One that cannot be written is noted with its error, and the others are written all the same.
        """
        for path, node in self._walk("", self._root):
            if self.mount_of(path) != mount:
                continue
            if isinstance(node, Directory):
                node.sync()
            elif node.pending:
                self._write_back(node, mount)

    # Inside.

    def _walk(self, path: str, directory: Directory) -> Iterator[tuple[str, File | Directory]]:
        yield path or "/", directory
        for name, node in directory.names.items():
            if isinstance(node, Directory):
                yield from self._walk(f"{path}/{name}", node)
            else:
                yield f"{path}/{name}", node

    def _write_back(self, file: File, mount: str) -> None:
        try:
            self._count("syncfs")
        except OSError as error:
            self._lose(file, mount, error.errno or errno.EIO)
        else:
            file.sync()

    def _lose(self, file: File, mount: str, error: int) -> None:
        file.unreported = error
        self.write_errors[mount] += 1
        if self.forgets_failed_syncs:
            file.forget_writes()

    def _count(self, call: str) -> None:
        self.calls[call] += 1
        if call not in MUTATIONS and call not in SYNCS:
            return
        if self.power_cut_after is not None:
            if self.power_cut_after <= 0:
                raise PowerCutError(call)
            self.power_cut_after -= 1
        for fault in self._faults:
            if fault.call in {None, call} and fault.times:
                if fault.after:
                    fault.after -= 1
                    continue
                fault.times -= 1
                raise OSError(fault.error, os.strerror(fault.error))

    def _handle(self, file: File) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self._open[handle] = file
        return handle

    def _room(self, inode: File, position: int) -> int:
        if self.capacity_bytes is None:
            return 2**62
        # Bytes that replace others need no room.
        return self.capacity_bytes - self.used_bytes + max(0, len(inode.content) - position)

    def _lookup(self, path: str) -> File | Directory:
        node: File | Directory = self._root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            if not isinstance(node, Directory) or name not in node.names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = node.names[name]
        return node

    def _file(self, path: str) -> File:
        node = self._lookup(path)
        if not isinstance(node, File):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._lookup(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, _, name = path.rpartition("/")
        return self._directory(head), name


class SimVolume:
    """One file system of the disk, synced as a whole. It knows what failed since it was opened."""

    def __init__(self, disk: SimDisk, mount: str) -> None:
        self._disk = disk
        self._mount = mount
        self._errors_seen = disk.write_errors[mount]
        self.is_open = True

    def sync(self, paths: Sequence[str]) -> None:
        assert self.is_open
        for path in paths:
            if self._disk.mount_of(path) != self._mount:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        self._disk.sync_mount(self._mount)
        errors = self._disk.write_errors[self._mount]
        if errors > self._errors_seen:
            self._errors_seen = errors
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def close(self) -> None:
        self.is_open = False
