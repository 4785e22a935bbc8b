"""Makes a node's disk slow or full and its clock wrong, from outside: the node runs as it is.

Python imports this file at its start where its folder is on PYTHONPATH. Each fault is a file in the
folder that CHRONIK_TEST_FAULTS names: `slow` (seconds per write or sync), `full` (empty), `clock`
(seconds to add), `slow-sync` (seconds) and `bad-sync` (empty) for the syncs of partitions' segments
alone. Faults come and go with their files.
"""

import errno
import itertools
import os
import time
from collections.abc import Sequence
from typing import Any

from chronik.storage.kernel_sync import KernelSync

FOLDER = os.environ["CHRONIK_TEST_FAULTS"]
TORN_BYTES = 7
SEGMENT = ".log"

_pwritev, _fdatasync, _open, _mkdir = os.pwritev, os.fdatasync, os.open, os.mkdir
_submit = KernelSync.submit
_time, _time_ns = time.time, time.time_ns
_turns = itertools.count()


def _fault(name: str) -> float | None:
    try:
        with open(f"{FOLDER}/{name}") as file:
            return float(file.read() or 0)
    except FileNotFoundError:
        return None


def _meet_slow_disk() -> None:
    seconds = _fault("slow")
    if seconds is not None:
        time.sleep(seconds)


def _meet_full_disk() -> None:
    if _fault("full") is not None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def pwritev(file: int, buffers: Sequence[Any], position: int, flags: int = 0) -> int:
    """A disk that fills up takes the first bytes of some writes before it refuses."""
    _meet_slow_disk()
    if _fault("full") is not None and next(_turns) % 2 == 0:
        return _pwritev(file, [memoryview(buffers[0])[:TORN_BYTES]], position, flags)
    _meet_full_disk()
    return _pwritev(file, buffers, position, flags)


def fdatasync(file: int) -> None:
    """Slow as the writes are."""
    _meet_slow_disk()
    if os.readlink(f"/proc/self/fd/{file}").endswith(SEGMENT):
        time.sleep(_fault("slow-sync") or 0)
        if _fault("bad-sync") is not None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    _fdatasync(file)


def submit(kernel: KernelSync, files: Sequence[tuple[int, int]]) -> int:
    """The kernel syncs good disks only: a thread meets the faults above."""
    bad = any(_fault(name) is not None for name in ("slow", "slow-sync", "bad-sync"))
    return 0 if bad else _submit(kernel, files)


def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """A full disk has no room for new files."""
    if flags & os.O_CREAT:
        _meet_full_disk()
    return _open(path, flags, mode, dir_fd=dir_fd)


def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    """Nor for directories."""
    _meet_full_disk()
    _mkdir(path, mode, dir_fd=dir_fd)


def wall_clock() -> float:
    """Seconds since 1970, wrong by what the fault says."""
    return _time() + (_fault("clock") or 0.0)


def wall_clock_ns() -> int:
    """Nanoseconds since 1970, wrong by what the fault says."""
    return _time_ns() + int((_fault("clock") or 0.0) * 1e9)


for module, name, function in (
    (os, "pwritev", pwritev),
    (os, "fdatasync", fdatasync),
    (KernelSync, "submit", submit),
    (os, "open", open_file),
    (os, "mkdir", mkdir),
    (time, "time", wall_clock),
    (time, "time_ns", wall_clock_ns),
):
    setattr(module, name, function)
