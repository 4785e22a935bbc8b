"""Log directories as a whole: made, found, and deleted so that they never come back.

A deleted log's directory is renamed to `<name>.<id>-delete` first, durably: from then on no restart
takes it for a log, and whatever is left of it is swept at the next start.
"""

from chronik.storage.fs import FileSystem, join, parent, unlink_if_present
from chronik.storage.segment import Storage

DELETE_SUFFIX = "-delete"
NAME_LENGTH_MAX = 255
"""Bytes in a file name (Linux NAME_MAX); a long topic name is cut to make room for the suffix."""


def log_name(topic: str, partition: int) -> str:
    """The directory's name, as in Kafka."""
    return f"{topic}-{partition}"


def create_log_directory(fs: FileSystem, path: str) -> None:
    """Makes an empty log's directory, durably. FileExistsError where there is one. Blocks."""
    fs.mkdir(path)
    fs.fsync_dir(parent(path))


def log_directories(fs: FileSystem, data_directory: str) -> list[str]:
    """Names of the logs in a data directory: `<topic>-<partition>`, none that is being deleted."""
    return sorted(name for name in fs.listdir(data_directory) if _is_log_name(name))


def delete_log_directory(storage: Storage, path: str, unique_id: str) -> None:
    """Removes a log with all its bytes. `unique_id` keeps two deletions of one name apart. Blocks.

    Maps that are still being sent from stay readable; nothing can be opened anew.
    """
    doomed = _doomed_path(path, unique_id)
    for name in storage.fs.listdir(path):
        storage.files.forget(join(path, name))
    storage.fs.rename(path, doomed)
    storage.fs.fsync_dir(parent(path))
    _remove(storage.fs, doomed)


def sweep_deleted(fs: FileSystem, data_directory: str) -> list[str]:
    """Finishes deletions that a crash interrupted; the names of what was removed. Blocks."""
    doomed = [name for name in fs.listdir(data_directory) if name.endswith(DELETE_SUFFIX)]
    for name in doomed:
        _remove(fs, join(data_directory, name))
    return doomed


def _remove(fs: FileSystem, path: str) -> None:
    for name in fs.listdir(path):
        unlink_if_present(fs, join(path, name))
    fs.rmdir(path)
    fs.fsync_dir(parent(path))


def _doomed_path(path: str, unique_id: str) -> str:
    suffix = f".{unique_id}{DELETE_SUFFIX}"
    name = path.rpartition("/")[2][: NAME_LENGTH_MAX - len(suffix)]
    return join(parent(path), name + suffix)


def _is_log_name(name: str) -> bool:
    topic, dash, partition = name.rpartition("-")
    return bool(topic and dash) and partition.isascii() and partition.isdigit()
