"""A file system synced as a whole by syncfs(2): where thousands of logs would wait for a sync each.

It must never say that all is well where a sync of the single files would not. So it is used only
where this is known to be true, and `open_volume` says None everywhere else:

- Linux says since 5.8 whether pages could not be written, to whoever had the descriptor open before
  (`errseq_t`, as for fsync but for the whole file system), and since 5.17 whether the file system
  could not be synced after them: its journal, the disk's cache.
- Not every file system passes on what the one below it said (overlayfs), or tells a server to sync
  (FUSE). ext4 does what it should: data, journal, and a flush of the disk also without a journal.
"""

import ctypes
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence

LINUX_MIN = (5, 17)
TYPES = frozenset({"ext4"})
MOUNTS = "/proc/self/mountinfo"
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?![\d_a-zA-Z])")


class RealVolume:
    """The file system of one directory. Its descriptor sees what fails from its opening on."""

    __slots__ = ("_device", "_directory", "_syncfs")

    def __init__(self, directory: int, syncfs: Callable[[int], int]) -> None:
        self._directory = directory
        self._device = os.fstat(directory).st_dev
        self._syncfs = syncfs

    def sync(self, paths: Sequence[str]) -> None:
        for path in paths:
            if os.stat(path).st_dev != self._device:
                raise OSError(errno.EXDEV, "is on another file system", path)
        if self._syncfs(self._directory):
            failed = ctypes.get_errno()
            raise OSError(failed, os.strerror(failed))
        # One that turned itself read-only or off after an error has nothing to sync, and says 0 to
        # syncfs (ext4 before Linux 6.12); to fsync it says what it is.
        os.fsync(self._directory)

    def close(self) -> None:
        os.close(self._directory)


def open_volume(path: str) -> RealVolume | None:
    """None where a sync of the whole is not possible or would not say that it failed."""
    if sys.platform != "linux" or not is_new_enough(os.uname().release):
        return None
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return None
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as mounts:
            types = mounted_types(mounts, os.fstat(directory).st_dev)
    except OSError:
        types = set()
    if len(types) == 1 and types <= TYPES:
        return RealVolume(directory, syncfs)
    os.close(directory)
    return None


def is_new_enough(release: str) -> bool:
    """Of a kernel's release as `uname -r` has it; what does not look like one is not."""
    found = _VERSION.match(release)
    return found is not None and (int(found[1]), int(found[2])) >= LINUX_MIN


def mounted_types(mounts: Iterable[str], device: int) -> set[str]:
    """The types of the file system with that device number (proc(5), mountinfo)."""
    number = f"{os.major(device)}:{os.minor(device)}"
    found = set()
    for line in mounts:
        fields = line.split()
        if len(fields) > 2 and fields[2] == number and "-" in fields[6:-1]:
            found.add(fields[fields.index("-", 6) + 1])
    return found
