"""Small text files written atomically, with version, count and CRC: what a restart starts from.

A file is its name's lines, readable with any pager:

    chronik recovery-points 1        kind and version
    2                                number of entries
    orders-0 1500                    one entry per line, words separated by one space
    orders-1 90
    crc32c 1a2b3c4d                  of every byte before this line

Node-wide files (in the data directory): `recovery-points` (per log, up to where it is known to be
synced), `log-starts` (for reporting; the log's own `log-start-offset` is what counts),
`high-watermarks`, and `clean-shutdown`, whose presence says that every log was closed in order.
"""

from collections.abc import Iterable, Mapping, Sequence

from chronik.model.crc import crc32c
from chronik.storage.fs import (
    FileSystem,
    join,
    parent,
    read_whole,
    unlink_if_present,
    write_atomically,
)

RECOVERY_POINTS = "recovery-points"
LOG_STARTS = "log-starts"
HIGH_WATERMARKS = "high-watermarks"
CLEAN_SHUTDOWN = "clean-shutdown"
VERSION = 1
_CRC_WORD = "crc32c"


class CorruptCheckpointError(ValueError):
    """The file is not as it was written. It names the file."""


def encode_lines(kind: str, entries: Sequence[str]) -> bytes:
    """The file's bytes."""
    body = "\n".join([f"chronik {kind} {VERSION}", str(len(entries)), *entries, ""]).encode()
    return body + f"{_CRC_WORD} {crc32c(body):08x}\n".encode()


def decode_lines(kind: str, data: bytes, path: str) -> list[str]:
    """The entries; CorruptCheckpointError where a byte is missing or wrong."""
    body, found, tail = data.rpartition(f"{_CRC_WORD} ".encode())
    if not found or tail != f"{crc32c(body):08x}\n".encode():
        raise CorruptCheckpointError(f"{path}: checksum does not match")
    heading, count, *entries = body.decode().split("\n")[:-1]
    if heading != f"chronik {kind} {VERSION}":
        raise CorruptCheckpointError(f"{path}: found {heading!r}, not {kind} version {VERSION}")
    if int(count) != len(entries):
        raise CorruptCheckpointError(f"{path}: {len(entries)} entries where {count} are promised")
    return entries


def write_lines(
    fs: FileSystem, path: str, kind: str, entries: Sequence[str], *, sync: bool = True
) -> None:
    """Replaces the file atomically."""
    write_atomically(fs, path, [encode_lines(kind, entries)], sync=sync)


def read_lines(fs: FileSystem, path: str, kind: str) -> list[str] | None:
    """The entries; None where there is no file."""
    try:
        data = read_whole(fs, path)
    except FileNotFoundError:
        return None
    return decode_lines(kind, data, path)


def write_offsets(
    fs: FileSystem, data_directory: str, kind: str, offsets: Mapping[str, int]
) -> None:
    """Writes one offset per log; `kind` is the file's name too.

    The watermarks are not synced: they change all the time, each sync would hold up the writes of
    the logs, and a start without them only asks the leaders for more.
    """
    lines = [f"{name} {offset}" for name, offset in sorted(offsets.items())]
    write_lines(fs, join(data_directory, kind), kind, lines, sync=kind != HIGH_WATERMARKS)


def read_offsets(fs: FileSystem, data_directory: str, kind: str) -> dict[str, int]:
    """One offset per log; empty where there is no file. CorruptCheckpointError if damaged."""
    lines = read_lines(fs, join(data_directory, kind), kind) or []
    return {name: int(offset) for name, _, offset in (line.rpartition(" ") for line in lines)}


def mark_clean_shutdown(fs: FileSystem, data_directory: str, facts: Iterable[str] = ()) -> None:
    """Says that every log was closed in order. Written last."""
    write_lines(fs, join(data_directory, CLEAN_SHUTDOWN), CLEAN_SHUTDOWN, list(facts))


def take_clean_shutdown(fs: FileSystem, data_directory: str) -> bool:
    """True after a clean stop. The mark is gone, durably, before anything is written."""
    path = join(data_directory, CLEAN_SHUTDOWN)
    try:
        clean = read_lines(fs, path, CLEAN_SHUTDOWN) is not None
    except CorruptCheckpointError:
        clean = False
    if unlink_if_present(fs, path):
        fs.fsync_dir(parent(path))
    return clean
