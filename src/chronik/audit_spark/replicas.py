"""The byte truth on Spark: which records the replicas' segment files hold near what was lost.

Tasks read the files and check each batch's CRC; of the records only those at a lost offset, or with
a lost sequence, go to Spark. Records are found by the pipeline's decoder, a whole chunk at a time.
"""

import mmap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from chronik.audit.payload import HEADER_SIZE, MAGIC, read_payload
from chronik.audit.record_log import sender_name
from chronik.audit.replicas import Damage
from chronik.audit.rows import NONE, Outcome
from chronik.audit_spark.order import Array
from chronik.audit_spark.sources import Unit, read_files, record_batch, schema_of
from chronik.pipeline.decode import decode
from chronik.wire.record_iter import CorruptRecords
from chronik.wire.records import batch_crc, scan

TEXTS = ("kind", "replica", "file", "topic", "sender", "outcome")
NUMBERS = ("position", "partition", "offset", "last_offset", "sequence", "checksum")
SCHEMA = schema_of((*TEXTS, *NUMBERS), TEXTS)
RECORD, DAMAGED, PRESENT = "record", "damaged", "present"
"""A record that was asked for; a batch with a wrong CRC; a file that holds records of ours."""
CHUNK_BYTES = 4 * 1024 * 1024
TASK_BYTES = 64 * 1024 * 1024
"""Small files are read by one task together."""
DAMAGE_MAX = 1_000
_HEAD = np.dtype(
    [
        ("magic", ">u4"),
        ("run", ">u8"),
        ("sender", ">u4"),
        ("size", ">u4"),
        ("sequence", ">u8"),
        ("checksum", ">u4"),
    ]
)
_JSON_HEAD = np.frombuffer(b'{"sequence":"', np.uint8)
_DIGITS = 10 ** np.arange(15, -1, -1, dtype=np.int64)
assert _HEAD.itemsize == HEADER_SIZE, "the layout of payload.py"


class Segment(NamedTuple):
    """A file of a replica."""

    replica: str
    topic: str
    partition: int
    path: str


class Near(NamedTuple):
    """Which records are asked for: at these offsets of a key, or with these sequences."""

    offsets: dict[tuple[str, int], Array]
    sequences: Array
    runs: dict[str, list[int]]
    """Per topic, the runs of the ledgers: their values have short names."""
    everything: bool = False


def segments_of(directories: Mapping[str, Path], topics: Sequence[str]) -> list[Segment]:
    """The segment files of topics below the data directories."""
    found = []
    for replica, directory in directories.items():
        for topic in topics:
            for folder in sorted(directory.rglob(f"{topic}-*")):
                number = folder.name.removeprefix(f"{topic}-")
                if folder.is_dir() and number.isdigit():
                    paths = sorted(folder.glob("*.log"))
                    found += [Segment(replica, topic, int(number), str(one)) for one in paths]
    return found


def stored_records(spark: SparkSession, segments: Sequence[Segment], near: Near) -> DataFrame:
    """One row per record near the lost values, per damaged batch, and per file of ours."""
    by_path = {one.path: one for one in segments}

    def read(unit: Unit) -> Iterator[pa.RecordBatch]:
        for _, path in unit:
            yield from read_segment(by_path[path], near)

    return read_files(spark, _units(segments), SCHEMA, read)


def damage_of(stored: DataFrame) -> list[Damage]:
    """The first damaged batches: enough to look at."""
    found = stored.where(f"kind = '{DAMAGED}'").orderBy("replica", "file", "position")
    return [
        Damage(
            one["replica"],
            Path(one["file"]),
            one["position"],
            one["offset"],
            one["last_offset"],
        )
        for one in found.limit(DAMAGE_MAX).collect()
    ]


def _units(segments: Sequence[Segment]) -> list[Unit]:
    units: list[list[tuple[int, str]]] = []
    room = 0
    for number, one in enumerate(segments):
        size = Path(one.path).stat().st_size
        if not units or size > room:
            units.append([])
            room = TASK_BYTES
        units[-1].append((number, one.path))
        room -= size
    return list(units)


def read_segment(segment: Segment, near: Near) -> Iterator[pa.RecordBatch]:
    path = Path(segment.path)
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        rows: list[dict[str, Any]] = []
        present = False
        with memoryview(mapped) as data:
            for low, high in _whole_chunks(data, rows):
                present |= _read_chunk(bytes(data[low:high]), segment, near, rows)
        if present:
            rows.append({"kind": PRESENT})
    if rows:
        yield _batch(rows, segment)


def _batch(rows: list[dict[str, Any]], segment: Segment) -> pa.RecordBatch:
    place = {
        "replica": segment.replica,
        "file": segment.path,
        "topic": segment.topic,
        "partition": segment.partition,
    }
    columns: dict[str, Any] = {}
    for name in (*TEXTS, *NUMBERS):
        absent = "" if name in TEXTS else NONE
        values = [row.get(name, place.get(name, absent)) for row in rows]
        columns[name] = pa.array(values, pa.string() if name in TEXTS else pa.int64())
    return record_batch(columns)


def _whole_chunks(data: memoryview, rows: list[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """Stretches of batches whose CRC is right; the others become rows."""
    low = high = 0
    for position, header in scan(data):
        end = position + header.size
        if batch_crc(data[position:end]) == header.crc:
            high = end
            if high - low >= CHUNK_BYTES:
                yield low, high
                low = high
            continue
        offsets = {"offset": header.base_offset, "last_offset": header.last_offset}
        rows.append({"kind": DAMAGED, "position": position} | offsets)
        if high > low:
            yield low, high
        low = high = end
    if high > low:
        yield low, high


def _read_chunk(chunk: bytes, segment: Segment, near: Near, rows: list[dict[str, Any]]) -> bool:
    """Adds what is asked for; is there any record of ours?"""
    try:
        found: Any = decode(
            chunk, segment.topic, segment.partition, columns=("key", "value", "offset")
        )
    except CorruptRecords:
        return _read_batches(chunk, segment, near, rows)
    ours, numbers = _sequences(found.column("value"))
    offsets = found.column("offset").to_numpy()
    for at in np.flatnonzero(ours & _asked(segment, near, offsets, numbers)).tolist():
        key, value = found.column("key")[at].as_py(), found.column("value")[at].as_py()
        rows += _rows(value, key, int(offsets[at]), near.runs[segment.topic])
    return bool(ours.any())


def _read_batches(chunk: bytes, segment: Segment, near: Near, rows: list[dict[str, Any]]) -> bool:
    """One by one: a batch with a right CRC that holds no records, as its writer made it."""
    batches = list(scan(chunk))
    if len(batches) == 1:
        offset = batches[0][1].base_offset
        rows.append({"kind": RECORD, "offset": offset, "outcome": Outcome.FAIL})
        return True
    present = False
    for position, header in batches:
        part = chunk[position : position + header.size]
        present |= _read_chunk(part, segment, near, rows)
    return present


def _asked(segment: Segment, near: Near, offsets: Array, sequences: Array) -> Array:
    if near.everything:
        return np.ones(len(offsets), bool)
    wanted = near.offsets.get((segment.topic, segment.partition), np.zeros(0, np.int64))
    return np.isin(offsets, wanted) | np.isin(sequences, near.sequences)


def _sequences(values: Any) -> tuple[Array, Array]:
    """Which values are of a workload, and their sequences: both layouts of `payload.py`."""
    edges = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
    sequences = np.full(len(values), NONE, np.int64)
    long = np.flatnonzero(np.diff(edges) >= HEADER_SIZE)
    if len(long):
        data = np.frombuffer(values.buffers()[2], np.uint8)
        heads = data[edges[long].astype(np.int64)[:, None] + np.arange(HEADER_SIZE)]
        plain = heads.view(_HEAD).ravel()
        texts = heads[:, len(_JSON_HEAD) :][:, : len(_DIGITS)].astype(np.int64) - ord("0")
        in_text = (heads[:, : len(_JSON_HEAD)] == _JSON_HEAD).all(axis=1)
        in_text &= ((texts >= 0) & (texts <= 9)).all(axis=1)
        named = np.where(in_text, texts @ _DIGITS, NONE)
        is_plain = plain["magic"] == MAGIC
        sequences[long] = np.where(is_plain, plain["sequence"].astype(np.int64), named)
    return sequences != NONE, sequences


def _rows(
    value: bytes, key: bytes | None, offset: int, runs: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Named as each run of the topic names it."""
    payload = read_payload(value, key)
    if payload is None:
        return
    for sender in {sender_name(payload.run, payload.sender, run) for run in runs}:
        yield {
            "kind": RECORD,
            "offset": offset,
            "sender": sender,
            "sequence": payload.sequence,
            "checksum": payload.checksum,
            "outcome": Outcome.OK if payload.intact else Outcome.FAIL,
        }
