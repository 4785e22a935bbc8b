"""The byte truth: the records in the segment files of replicas, as rows, and damaged batches.

A data directory is what a Chronik or Kafka node keeps: folders `<topic>-<partition>` somewhere
below it, with `<base offset>.log` files of plain record batches.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from chronik.audit.diagnosis import CERTAIN, Cause, Evidence
from chronik.audit.payload import read_payload
from chronik.audit.record_log import sender_name
from chronik.audit.rows import Kind, Outcome, Row
from chronik.wire.record_iter import CorruptRecords, iter_records
from chronik.wire.records import BatchHeader, batch_crc, scan


class Damage(NamedTuple):
    """A batch whose bytes do not agree with its CRC."""

    replica: str
    file: Path
    position: int
    base_offset: int
    last_offset: int


class Replicas(NamedTuple):
    """What the files hold."""

    rows: list[Row]
    damaged: list[Damage]


def read_replicas(directories: Mapping[str, Path], topic: str, run: int) -> Replicas:
    """The records of a topic in each replica's files; rows of kind `replica`, by replica name."""
    found = Replicas([], [])
    for replica, directory in directories.items():
        for folder in sorted(directory.rglob(f"{topic}-*")):
            number = folder.name.rpartition("-")[2]
            if not folder.is_dir() or folder.name != f"{topic}-{number}" or not number.isdigit():
                continue
            start = Row(Kind.REPLICA, replica, topic=topic, partition=int(number))
            for path in sorted(folder.glob("*.log")):
                _read_segment(path, start, run, found)
    return found


def replicas_of(rows: Iterable[Row], directories: Mapping[str, Path]) -> Replicas:
    """What the files hold of the topics and runs that a ledger speaks of."""
    named = {(row.topic, row.run) for row in rows if row.kind == Kind.SEND}
    found = Replicas([], [])
    for topic, run in sorted(named):
        held = read_replicas(directories, topic, int(run, 16) if run else 0)
        found.rows.extend(held.rows)
        found.damaged.extend(held.damaged)
    return found


def _read_segment(path: Path, start: Row, run: int, found: Replicas) -> None:
    data = memoryview(path.read_bytes())
    for position, header in scan(data):
        batch = data[position : position + header.size]
        if batch_crc(batch) != header.crc:
            ends = (header.base_offset, header.last_offset)
            found.damaged.append(Damage(start.process, path, position, *ends))
        elif not header.is_control:
            found.rows.extend(_rows(batch, header, start, run))


def _rows(batch: memoryview, header: BatchHeader, start: Row, run: int) -> Iterator[Row]:
    try:
        for record in iter_records(batch):
            payload = read_payload(record.value, record.key)
            if payload is not None:
                yield start._replace(
                    offset=record.offset,
                    sender=sender_name(payload.run, payload.sender, run),
                    sequence=payload.sequence,
                    checksum=payload.checksum,
                    outcome=Outcome.OK if payload.intact else Outcome.FAIL,
                    epoch=header.leader_epoch,
                )
    except CorruptRecords:
        yield start._replace(offset=header.base_offset, outcome=Outcome.FAIL)


def damage_causes(damaged: list[Damage]) -> Iterator[Cause]:
    """A wrong CRC in a replica's own file: it was damaged there, not on the way."""
    for one in damaged:
        said = f"{one.file.parent.name} at {one.replica}: the batch of offsets {one.base_offset} to"
        said += f" {one.last_offset} does not agree with its CRC"
        shown = [Evidence(str(one.file), one.position, "position of the batch in the file")]
        yield Cause("damaged-on-disk", CERTAIN, said, shown)
