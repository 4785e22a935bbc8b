"""A node's data directory: made, locked against a second process, and known to belong to the node.

<data dir>/.lock            held by flock while a process uses the directory
<data dir>/meta.properties  format version and node id
<data dir>/metadata/        the Raft log of the metadata
<data dir>/topics/          one directory per partition; `.directory-id` names this disk (KIP-858)
<data dir>/traces/          trace files, where they are on
"""

import fcntl
import os
import secrets

from chronik.storage.fs import FileSystem, Volume, join, read_whole, write_atomically

META = "meta.properties"
LOCK = ".lock"
DIRECTORY_ID = ".directory-id"
FORMAT_VERSION = 1


class DataDirError(Exception):
    """The directory cannot be used; the message says why and what to do."""


class DataDir:
    """An opened and locked data directory."""

    def __init__(self, fs: FileSystem, path: str, lock: int) -> None:
        self.path = path
        self.topics = join(path, "topics")
        self.metadata = join(path, "metadata")
        self.traces = join(path, "traces")
        self.directory_id = b""
        """Drawn when the folder of the logs was made: lost with them, and never the same again."""
        self.volume: Volume | None = None
        """Where the logs are, to sync them all at once: open before any of them is written."""
        self._fs = fs
        self._lock = lock

    @classmethod
    def open(cls, fs: FileSystem, path: str, node_id: int) -> "DataDir":
        """Makes what is missing; refuses what belongs to another node or process."""
        path = os.path.abspath(path)
        try:
            os.makedirs(path, exist_ok=True)
            lock = _lock(path)
        except OSError as error:
            raise DataDirError(
                f"cannot use {path} for data: {error.strerror}; name a directory that this user "
                "may write with --data"
            ) from error
        data_dir = cls(fs, path, lock)
        try:
            data_dir._prepare(node_id)
        except OSError as error:
            data_dir.close()
            raise DataDirError(
                f"cannot use {path} for data: {error.filename or path}: {error.strerror}; it must "
                "be a directory on a writable disk, and all in it this user's"
            ) from error
        except BaseException:
            data_dir.close()
            raise
        return data_dir

    def _prepare(self, node_id: int) -> None:
        self._check_meta(node_id)
        for folder in (self.topics, self.metadata):
            os.makedirs(folder, exist_ok=True)
        self._fs.fsync_dir(self.path)
        self.volume = self._fs.open_volume(self.topics)
        self.directory_id = _directory_id(self._fs, self.topics)

    def close(self) -> None:
        """Lets another process in."""
        if self.volume is not None:
            self.volume.close()
        os.close(self._lock)

    def _check_meta(self, node_id: int) -> None:
        meta = join(self.path, META)
        try:
            text = read_whole(self._fs, meta).decode("utf-8", "replace")
        except FileNotFoundError:
            content = f"version={FORMAT_VERSION}\nnode.id={node_id}\n"
            write_atomically(self._fs, meta, [content.encode()])
            return
        found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        if found.get("version") != str(FORMAT_VERSION):
            raise DataDirError(
                f"{meta} has format version {found.get('version')!r}, this release reads "
                f"{FORMAT_VERSION}: use the release that wrote it, or another directory"
            )
        if found.get("node.id") != str(node_id):
            raise DataDirError(
                f"{self.path} belongs to node {found.get('node.id')}, this is node {node_id}: "
                "name the right directory or node id"
            )


def _directory_id(fs: FileSystem, folder: str) -> bytes:
    path = join(folder, DIRECTORY_ID)
    try:
        return bytes.fromhex(read_whole(fs, path).decode())
    except FileNotFoundError:
        drawn = secrets.token_bytes(16)
        write_atomically(fs, path, [drawn.hex().encode()])
        return drawn
    except ValueError as error:
        raise DataDirError(
            f"{path} is damaged: put it back, or delete it and this node counts as one that lost "
            "its logs"
        ) from error


def _lock(path: str) -> int:
    lock = os.open(join(path, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise DataDirError(
            f"{path} is in use by another Chronik process: stop it, or use another directory"
        ) from error
    return lock
