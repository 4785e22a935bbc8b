"""Idempotent producers' state at one offset of a log: `<offset>.snapshot`.

    0        4         8        12
    | "CHPS" | version | count  | entries... | CRC-32C of everything before |

    entry: producer id 8 | producer epoch 2 | coordinator epoch 4 | last timestamp 8 |
           first offset of the open transaction 8 (-1: none) | batches 1 | batch...
    batch: base sequence 4 | last sequence 4 | base offset 8 | last offset 8 | timestamp 8

Big-endian. The state covers every batch below the offset in the file's name; what follows is
replayed from batch headers (`Log.headers`). A snapshot beyond the log's end is removed by recovery.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from chronik.model.crc import crc32c
from chronik.model.limits import SEQUENCE_WINDOW_BATCHES
from chronik.storage.fs import FileSystem, join, read_whole, unlink_if_present, write_atomically

SNAPSHOT_SUFFIX = ".snapshot"
MAGIC = b"CHPS"
VERSION = 1
NO_TRANSACTION = -1
_HEAD = struct.Struct(">4sII")
_ENTRY = struct.Struct(">qhiqqb")
_BATCH = struct.Struct(">iiqqq")
_CRC = struct.Struct(">I")


class CorruptSnapshotError(ValueError):
    """The snapshot is not as it was written."""


class ProducerBatch(NamedTuple):
    """One of a producer's last batches: enough to answer its retry with the first answer."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """One producer's state."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int
    transaction_first_offset: int
    batches: tuple[ProducerBatch, ...]


def encode(entries: Sequence[ProducerEntry]) -> bytes:
    """The snapshot's bytes."""
    parts = [_HEAD.pack(MAGIC, VERSION, len(entries))]
    for entry in entries:
        *fields, batches = entry
        assert len(batches) <= SEQUENCE_WINDOW_BATCHES
        parts.append(_ENTRY.pack(*fields, len(batches)))
        parts += [_BATCH.pack(*batch) for batch in batches]
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(body))


def decode(data: bytes) -> list[ProducerEntry]:
    """The entries; CorruptSnapshotError where a byte is missing or wrong."""
    body = data[: -_CRC.size]
    if len(body) < _HEAD.size or _CRC.pack(crc32c(body)) != data[-_CRC.size :]:
        raise CorruptSnapshotError("checksum does not match")
    magic, version, count = _HEAD.unpack_from(body)
    if (magic, version) != (MAGIC, VERSION):
        raise CorruptSnapshotError(f"found {magic!r} version {version}")
    try:
        return list(_entries(body, count))
    except struct.error as error:
        raise CorruptSnapshotError(f"{count} entries do not fit") from error


def _entries(body: bytes, count: int) -> Iterator[ProducerEntry]:
    position = _HEAD.size
    for _ in range(count):
        *fields, batch_count = _ENTRY.unpack_from(body, position)
        position += _ENTRY.size
        end = position + batch_count * _BATCH.size
        batches = tuple(
            ProducerBatch(*_BATCH.unpack_from(body, at)) for at in range(position, end, _BATCH.size)
        )
        position = end
        producer_id, epoch, coordinator_epoch, timestamp, first_offset = fields
        yield ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, first_offset, batches)


def snapshot_path(directory: str, offset: int) -> str:
    """Where the state at `offset` is kept."""
    return join(directory, f"{offset:020d}{SNAPSHOT_SUFFIX}")


def snapshot_offsets(fs: FileSystem, directory: str) -> list[int]:
    """Offsets of the snapshots that are there, ascending."""
    return sorted(offsets_in(fs.listdir(directory)))


def offsets_in(names: Iterable[str]) -> Iterator[int]:
    """The offsets of those names that are snapshots'."""
    for name in names:
        stem = name.removesuffix(SNAPSHOT_SUFFIX)
        if stem != name and stem.isdigit():
            yield int(stem)


def write_snapshot(
    fs: FileSystem,
    directory: str,
    offset: int,
    entries: Sequence[ProducerEntry],
    *,
    sync: bool = True,
) -> None:
    """Writes the state at `offset`, durably where `sync`; a torn one is noticed. Blocks."""
    write_atomically(fs, snapshot_path(directory, offset), [encode(entries)], sync=sync)


def newest_snapshot(
    fs: FileSystem, directory: str, end_offset: int, known: list[int] | None = None
) -> tuple[int, list[ProducerEntry]] | None:
    """The newest whole snapshot at or below `end_offset`; damaged ones are passed over.

    `known` are the offsets that there are, where the directory was read just now.
    """
    for offset in reversed(snapshot_offsets(fs, directory) if known is None else known):
        if offset > end_offset:
            continue
        try:
            return offset, decode(read_whole(fs, snapshot_path(directory, offset)))
        except CorruptSnapshotError:
            continue
    return None


def prune_snapshots(fs: FileSystem, directory: str, keep: int = 2) -> None:
    """Removes all but the newest `keep`: a second one stands by should the newest be damaged."""
    for offset in snapshot_offsets(fs, directory)[:-keep]:
        unlink_if_present(fs, snapshot_path(directory, offset))
