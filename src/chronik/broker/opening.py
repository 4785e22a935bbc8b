"""Opening partitions' directories at the start of a node: log, topic id, producers. Blocking."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from chronik.cluster.image import Topic
from chronik.replica.producers import ProducerEntry, ProducerTable, SequencedBatch
from chronik.storage import producer_snapshot
from chronik.storage.directory import delete_log_directory, log_name
from chronik.storage.fs import (
    FileSystem,
    join,
    parent,
    read_whole,
    unlink_if_present,
    write_all,
)
from chronik.storage.log import Log
from chronik.storage.recovery import RecoveryReport, recover
from chronik.storage.segment import LogConfig, Storage
from chronik.wire.records import BatchHeader

PARTITION_METADATA = "partition.metadata"
"""Names the topic id, so that a new topic never inherits the bytes of a deleted namesake."""

log = logging.getLogger(__name__)


class Opened(NamedTuple):
    """A log and its producers; None where the directory does not exist yet."""

    log: Log
    producers: ProducerTable | None
    checkpointed_at: int = -1
    """Up to here index, epochs and producers are in files of their own."""


def make_directory(fs: FileSystem, directory: str, topic_id: bytes) -> None:
    """The directory of a new partition, durable with its topic id.

    All is made before the first sync, so that a journaling file system commits once. Torn by a
    power cut it belongs to no topic, and nothing is in it yet.
    """
    with suppress(FileExistsError):  # an earlier attempt failed half-way
        fs.mkdir(directory)
    path = join(directory, PARTITION_METADATA)
    unlink_if_present(fs, path)
    file = fs.create(path)
    try:
        write_all(fs, file, [f"version: 0\ntopic_id: {topic_id.hex()}\n".encode()], 0)
        fs.fdatasync(file)
    finally:
        fs.close(file)
    fs.fsync_dir(directory)
    fs.fsync_dir(parent(directory))


def open_partition(
    storage: Storage,
    topics_dir: str,
    topic: Topic,
    index: int,
    points: Mapping[str, int],
    *,
    clean: bool,
) -> Opened | None:
    """The log as the last run left it; None where it is a deleted namesake's, now removed."""
    name = log_name(topic.name, index)
    directory = join(topics_dir, name)
    if not _belongs(storage.fs, directory, topic):
        delete_log_directory(storage, directory, topic.id.hex())
        return None
    recovered, report = recover(storage, directory, LogConfig(), points.get(name, 0), clean=clean)
    _tell(name, report)
    producers = rebuilt_producers(recovered, report=report)
    return Opened(recovered, producers, report.checkpointed_to)


def open_all(
    storage: Storage,
    topics_dir: str,
    wanted: Iterable[tuple[Topic, int]],
    points: Mapping[str, int],
    present: set[str],
    *,
    clean: bool,
) -> list[Opened | None]:
    """In that order, None for those that have no directory, or one of a deleted namesake."""
    return [
        open_partition(storage, topics_dir, topic, index, points, clean=clean)
        if log_name(topic.name, index) in present
        else None
        for topic, index in wanted
    ]


def _belongs(fs: FileSystem, directory: str, topic: Topic) -> bool:
    try:
        text = read_whole(fs, join(directory, PARTITION_METADATA)).decode("ascii", "replace")
    except FileNotFoundError:
        return False  # a crash before the first record: nothing is in it
    return f"topic_id: {topic.id.hex()}" in text


def _tell(name: str, report: RecoveryReport) -> None:
    for damage in report.damage:
        log.error("%s: damaged data: %s; it is not served", name, damage)
    for note in report.notes:
        log.warning("%s: %s", name, note)
    if report.bytes_cut:
        log.info("%s: cut %d bytes of an unfinished write", name, report.bytes_cut)


def rebuilt_producers(
    recovered: Log, end_offset: int | None = None, *, report: RecoveryReport | None = None
) -> ProducerTable:
    """The producers as the log tells them: newest snapshot, then batch headers. Blocks.

    With `end_offset`, as they will be when the log is cut there. `report` spares reading again what
    recovery has just read.
    """
    fs = recovered.storage.fs
    end_offset = recovered.end_offset if end_offset is None else end_offset
    known = report.snapshots if report is not None else None
    newest = producer_snapshot.newest_snapshot(fs, recovered.directory, end_offset, known)
    offset, entries = newest if newest is not None else (0, [])
    table = ProducerTable(_from_stored(entries))
    if offset < end_offset:
        for header in _headers(recovered, max(offset, recovered.start_offset), report):
            if header.last_offset >= end_offset:
                break
            if header.has_producer_id and header.base_offset >= offset:
                table.advance(header, header.base_offset, header.max_timestamp)
    return table


def _headers(log: Log, offset: int, report: RecoveryReport | None) -> Iterable[BatchHeader]:
    tail = report.tail if report is not None else None
    return tail[1] if tail is not None and tail[0] <= offset else log.headers(offset)


def _from_stored(
    entries: list[producer_snapshot.ProducerEntry],
) -> Iterator[ProducerEntry]:
    for one in entries:
        batches = tuple(SequencedBatch._make(batch) for batch in one.batches)
        yield ProducerEntry(one.producer_id, one.producer_epoch, batches, one.last_timestamp)


def producers_writer(
    fs: FileSystem, directory: str, producers: ProducerTable, end_offset: int, *, sync: bool
) -> Callable[[], None]:
    """Takes the producers as they are below `end_offset` now; the result writes them to disk.

    Batches at or beyond it may never reach the disk: remembering them would turn the retry of a
    lost batch into a duplicate of nothing. A producer of which nothing is left is left out: found
    without batches it would have to start at 0, while unknown it goes on where it was.
    """
    stored = [
        producer_snapshot.ProducerEntry(
            one.producer_id,
            one.epoch,
            -1,
            one.last_timestamp_ms,
            producer_snapshot.NO_TRANSACTION,
            batches,
        )
        for one in producers
        if (batches := _below(one, end_offset))
    ]

    def write() -> None:
        producer_snapshot.write_snapshot(fs, directory, end_offset, stored, sync=sync)
        producer_snapshot.prune_snapshots(fs, directory)

    return write


def _below(producer: ProducerEntry, end_offset: int) -> tuple[producer_snapshot.ProducerBatch, ...]:
    return tuple(
        producer_snapshot.ProducerBatch._make(batch)
        for batch in producer.batches
        if batch.last_offset < end_offset
    )
