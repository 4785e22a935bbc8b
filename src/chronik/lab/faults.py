"""What happens around a defect: faults that a sound node survives, installed in its process.

A fault takes the disk and the data directory of the node and returns the disk it shall use.
"""

import errno
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chronik.broker import replication
from chronik.handlers.produce_answer import Answer
from chronik.lab.replacing import replace
from chronik.storage.fs import FileSystem, RealFileSystem
from chronik.wire.records import Buffer

PAUSE_FILE = "replication-paused"
SIZES_FILE = "synced-sizes.json"
ANSWER_LOST_EVERY = 7
ANSWERS_LOST_MAX = 5
WRITE_REFUSED_EVERY = 5
_SEGMENT = ".log"


def paused_replication(fs: FileSystem, data: str) -> FileSystem:
    """While a file lies in the cluster's folder, followers ask for nothing: a cut network."""
    flag = Path(data).parent / PAUSE_FILE
    ask = replication._Fetcher._ask

    def waiting(self: Any) -> None:
        if flag.exists():
            self._is_under_way = True
            self._again = self._loop.call_later(0.02, self._ask)
        else:
            ask(self)

    replace(replication._Fetcher, "_ask", waiting)
    return fs


def lost_answers(fs: FileSystem, data: str) -> FileSystem:
    """Some answers to Produce are lost with their connection: the client sends again."""
    send = Answer._send
    count = 0

    def losing(self: Any) -> None:
        nonlocal count
        count += 1
        lost = count % ANSWER_LOST_EVERY == 0 and count <= ANSWER_LOST_EVERY * ANSWERS_LOST_MAX
        if lost and self.call.answer is None:
            if self._timer is not None:
                self._timer.cancel()
            self.call.hang_up()
        else:
            send(self)

    replace(Answer, "_send", losing)
    return fs


class RefusingDisk(RealFileSystem):
    """Every so often a write to a segment fails, as on a full disk."""

    def __init__(self) -> None:
        self._files: set[int] = set()
        self._count = 0

    def create(self, path: str) -> int:
        file = super().create(path)
        self._files.discard(file)
        if "/topics/" in path and path.endswith(_SEGMENT):
            self._files.add(file)
        return file

    def pwritev(self, file: int, buffers: Sequence[Buffer], position: int) -> int:
        if file in self._files:
            self._count += 1
            if self._count % WRITE_REFUSED_EVERY == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwritev(file, buffers, position)


class SyncedSizes(RealFileSystem):
    """Notes how much of each segment is synced: what a power cut leaves (see `power_cut`)."""

    def __init__(self, data: str) -> None:
        self._notes = Path(data) / SIZES_FILE
        self._paths: dict[int, str] = {}
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()

    def create(self, path: str) -> int:
        file = super().create(path)
        self._opened(file, path)
        return file

    def open(self, path: str) -> int:
        file = super().open(path)
        self._opened(file, path)
        return file

    def _opened(self, file: int, path: str) -> None:
        self._paths.pop(file, None)
        if "/topics/" in path and path.endswith(_SEGMENT):
            self._paths[file] = path
            # What was there at the start had survived until then.
            self._note(path, self._sizes.get(path, os.fstat(file).st_size))

    def fdatasync(self, file: int) -> None:
        super().fdatasync(file)
        if file in self._paths:
            self._note(self._paths[file], os.fstat(file).st_size)

    def _note(self, path: str, size: int) -> None:
        """Disk threads come together here."""
        with self._lock:
            self._sizes[path] = size
            temporary = self._notes.with_suffix(".tmp")
            temporary.write_text(json.dumps(self._sizes))
            temporary.replace(self._notes)


def power_cut(data: Path) -> int:
    """After a kill: takes from each segment what was never synced; returns how many bytes."""
    lost = 0
    for name, size in json.loads((data / SIZES_FILE).read_text()).items():
        path = Path(name)
        if path.exists() and path.stat().st_size > size:
            lost += path.stat().st_size - size
            os.truncate(path, size)
    return lost


FAULTS: dict[str, Callable[[FileSystem, str], FileSystem]] = {
    "paused-replication": paused_replication,
    "lost-answers": lost_answers,
    "refusing-disk": lambda fs, data: RefusingDisk(),
    "power-cut": lambda fs, data: SyncedSizes(data),
}
