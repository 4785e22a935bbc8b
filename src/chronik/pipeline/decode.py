"""Record batches to Arrow, without a Python object per record.

Only the record lengths are walked in Python. The other varints are read by numpy for all records
at once, and one Arrow array is laid over the untouched bytes with the offsets [key start, key end,
value start, value end, ...]: its elements are keys, gaps, values, gaps, and `take` copies keys and
values out in C++. The columns are those of Spark's Kafka source.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.pipeline.varints import Bytes, Longs, read_varints, record_positions
from chronik.wire.record_iter import CorruptRecords, decompress
from chronik.wire.records import HEADER_SIZE, MAGIC, BatchHeader, Buffer, batch_crc, scan

HEADERS: Any = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
"""Names and types as in Spark's Kafka source."""
COLUMNS = tuple(SCHEMA.names)
CREATE_TIME, LOG_APPEND_TIME = 0, 1
_ABORT_MARKER = 0
_NONE = np.zeros(0, np.int64)
_RECORD_BYTES_MIN = 6
"""Attributes, two deltas, two lengths and a count: so many records at most are in so many bytes."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """One aborted transaction, as a Fetch answer of isolation level read_committed names it."""

    producer_id: int
    first_offset: int


@dataclass(slots=True)
class _Body:
    """The uncompressed records of the batches that are wanted, one after the other."""

    data: bytes
    positions: list[Longs] = field(default_factory=list)
    batches: list[BatchHeader] = field(default_factory=list)


def decode(
    data: Buffer,
    topic: str,
    partition: int,
    *,
    start: int = 0,
    end: int = 1 << 62,
    columns: Sequence[str] = COLUMNS,
    aborted: Collection[Aborted] = (),
) -> pa.RecordBatch:
    """The records of whole batches with start <= offset < end; a torn last batch is left out.

    Control batches are skipped, and so is the data of the `aborted` transactions. A batch whose CRC
    is wrong raises `CorruptRecords`.
    """
    wanted = _readable(_within(data, start, end), data, aborted)
    body = _body(data, wanted)
    return _columns(body, topic, partition, start, end, columns)


def next_offset(data: Buffer, default: int) -> int:
    """The offset after the last whole batch: where the next Fetch begins, holes included."""
    found = default
    for _, header in scan(data):
        found = max(found, header.next_offset)
    return found


# -- which batches


def _within(data: Buffer, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    for position, header in scan(data):
        if header.magic != MAGIC:
            raise CorruptRecords(f"batch of magic {header.magic} at offset {header.base_offset}")
        if header.base_offset < end:
            _check(memoryview(data)[position : position + header.size], header)
            # A batch that ends before `start` may still be the marker which ends a transaction.
            if header.next_offset > start or header.is_control:
                yield position, header


def _check(batch: memoryview, header: BatchHeader) -> None:
    if batch_crc(batch) != header.crc:
        raise CorruptRecords(f"wrong CRC in the batch at offset {header.base_offset}")
    if not 0 <= header.record_count <= 1 + _bytes_max(header) // _RECORD_BYTES_MIN:
        raise CorruptRecords(f"{header.record_count} records in the batch at {header.base_offset}")


def _bytes_max(header: BatchHeader) -> int:
    return header.length if header.codec == 0 else 1 << 31


def _readable(
    batches: Iterable[tuple[int, BatchHeader]], data: Buffer, aborted: Collection[Aborted]
) -> Iterator[tuple[int, BatchHeader]]:
    """Leaves out markers and what they aborted, as Kafka's consumer does (KIP-98)."""
    waiting = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    open_ids: set[int] = set()
    for position, header in batches:
        while waiting and waiting[-1].first_offset <= header.last_offset:
            open_ids.add(waiting.pop().producer_id)
        if header.is_control:
            if _marker(data, position, header) == _ABORT_MARKER:
                open_ids.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_ids):
            yield position, header


def _marker(data: Buffer, position: int, header: BatchHeader) -> int:
    """0 abort, 1 commit: the second number in the key of a control record."""
    body = decompress(header.codec, data[position + HEADER_SIZE : position + header.size])
    array = np.frombuffer(body, np.uint8)
    _, at = read_varints(array, np.zeros(1, np.int64))
    at += 1
    for _ in ("timestamp delta", "offset delta", "key length"):
        _, at = read_varints(array, at)
    return int.from_bytes(body[int(at[0]) + 2 : int(at[0]) + 4], "big")


def _body(data: Buffer, batches: Iterable[tuple[int, BatchHeader]]) -> _Body:
    found = list(batches)
    if all(header.codec == 0 for _, header in found):
        body = _Body(data if isinstance(data, bytes) else bytes(data))
        for position, header in found:
            _walk(body, header, position + HEADER_SIZE, position + header.size)
        return body
    parts = [decompress(h.codec, data[p + HEADER_SIZE : p + h.size]) for p, h in found]
    body = _Body(b"".join(parts))
    at = 0
    for (_, header), part in zip(found, parts, strict=True):
        _walk(body, header, at, at + len(part))
        at += len(part)
    return body


def _walk(body: _Body, header: BatchHeader, position: int, end: int) -> None:
    array = np.frombuffer(body.data, np.uint8)
    body.positions.append(record_positions(body.data, array, position, end, header.record_count))
    body.batches.append(header)


# -- columns


@dataclass(slots=True)
class _Fields:
    """Positions of the fields of each record, and the values of its numbers."""

    offset: Longs
    timestamp_ms: Longs
    timestamp_type: npt.NDArray[np.int32]
    key_start: Longs
    key_size: Longs
    value_start: Longs
    value_size: Longs
    headers: Longs
    """Position of the first header, after the count."""
    header_count: Longs
    end: Longs

    def where(self, keep: npt.NDArray[np.bool_]) -> "_Fields":
        """Some of the records."""
        if keep.all():
            return self
        return _Fields(*(getattr(self, name)[keep] for name in _Fields.__slots__))


def _columns(
    body: _Body, topic: str, partition: int, start: int, end: int, columns: Sequence[str]
) -> pa.RecordBatch:
    data = np.frombuffer(body.data, np.uint8)
    fields = _fields(data, body)
    fields = fields.where((fields.offset >= start) & (fields.offset < end))
    rows = len(fields.offset)
    makers: dict[str, Callable[[], Any]] = {
        "key": lambda: _binary(body.data, fields, 0),
        "value": lambda: _binary(body.data, fields, 2),
        "topic": lambda: pa.repeat(pa.scalar(topic, pa.string()), rows),
        "partition": lambda: pa.array(np.full(rows, partition, np.int32)),
        "offset": lambda: pa.array(fields.offset),
        "timestamp": lambda: pa.array(fields.timestamp_ms * 1000).cast(SCHEMA.field(5).type),
        "timestampType": lambda: pa.array(fields.timestamp_type),
        "headers": lambda: _headers(data, body.data, fields),
    }
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    return pa.record_batch([makers[name]() for name in columns], schema=schema)


def _fields(data: Bytes, body: _Body) -> _Fields:
    counts = [header.record_count for header in body.batches]
    length, starts = read_varints(data, np.concatenate([_NONE, *body.positions]))
    ends = starts + length
    timestamp_delta, at = read_varints(data, starts + 1)
    offset_delta, at = read_varints(data, at)
    key_size, key_start = read_varints(data, at)
    value_size, value_start = read_varints(data, key_start + _sized(key_size))
    header_count, headers = read_varints(data, value_start + _sized(value_size))
    fields = _Fields(
        _each([h.base_offset for h in body.batches], counts) + offset_delta,
        _timestamps(body.batches, counts, timestamp_delta),
        _each([int(h.is_log_append_time) for h in body.batches], counts).astype(np.int32),
        key_start,
        key_size,
        value_start,
        value_size,
        headers,
        header_count,
        ends,
    )
    _check_fields(fields)
    return fields


def _check_fields(fields: _Fields) -> None:
    bad = (
        (fields.headers > fields.end) | (fields.header_count < 0) | (fields.end < fields.key_start)
    )
    bad |= (fields.header_count == 0) & (fields.headers != fields.end)
    bad |= fields.header_count * 2 > fields.end - fields.headers
    if bad.any():
        offset = int(fields.offset[np.argmax(bad)])
        raise CorruptRecords(f"the fields of the record at offset {offset} do not fit its length")


def _sized(sizes: Longs) -> Longs:
    """Bytes that a nullable field takes: -1 stands for null, which takes none."""
    if len(sizes) and int(sizes.min()) < -1:
        raise CorruptRecords("a field of negative length")
    return np.maximum(sizes, 0)


def _each(values: list[int], counts: list[int]) -> Longs:
    return np.repeat(np.array(values, np.int64), counts)


def _timestamps(batches: list[BatchHeader], counts: list[int], delta: Longs) -> Longs:
    base = [h.max_timestamp if h.is_log_append_time else h.base_timestamp for h in batches]
    factor = [0 if h.is_log_append_time else 1 for h in batches]
    if all(factor):
        return _each(base, counts) + delta
    return _each(base, counts) + _each(factor, counts) * delta


def _binary(data: bytes, fields: _Fields, which: int) -> Any:
    """Keys (0) or values (2) as one Arrow array."""
    rows = len(fields.offset)
    edges = np.empty(4 * rows + 1, np.int32)
    edges[0:-1:4] = fields.key_start
    edges[1:-1:4] = fields.key_start + np.maximum(fields.key_size, 0)
    edges[2:-1:4] = fields.value_start
    edges[3:-1:4] = fields.value_start + np.maximum(fields.value_size, 0)
    edges[-1] = edges[-2] if rows else 0
    sizes = fields.key_size if which == 0 else fields.value_size
    return _take(data, edges, np.arange(rows, dtype=np.int64) * 4 + which, sizes < 0)


def _take(
    data: bytes, edges: npt.NDArray[np.int32], index: Longs, absent: npt.NDArray[np.bool_]
) -> Any:
    view: Any = edges
    buffers = [None, pa.py_buffer(view), pa.py_buffer(data)]
    laid = pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)
    wanted: Any = pa.array(index, mask=absent if absent.any() else None)
    return laid.take(wanted)


def _headers(data: Bytes, raw: bytes, fields: _Fields) -> Any:
    """The headers column; null for a record that has none, as in Spark's Kafka source."""
    counts = fields.header_count
    edges = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    spans = np.zeros((int(edges[-1]), 4), np.int64)
    at = fields.headers.copy()
    rows = np.flatnonzero(counts)
    number = 0
    while len(rows):
        here, at[rows] = _header(data, at[rows], fields.end[rows])
        spans[edges[rows] + number] = here
        number += 1
        rows = rows[counts[rows] > number]
    if (at != fields.end).any():
        raise CorruptRecords("the headers of a record do not fit its length")
    return _header_lists(raw, edges, spans, counts == 0)


def _header(data: Bytes, at: Longs, end: Longs) -> tuple[Longs, Longs]:
    """Start and size of the name and of the value of one header of several records."""
    name_size, name = read_varints(data, at)
    if (name_size < 0).any():
        raise CorruptRecords("a header without a name")
    value_size, value = read_varints(data, name + name_size)
    after = value + _sized(value_size)
    if (after > end).any():
        raise CorruptRecords("a header reaches beyond its record")
    return np.stack([name, name_size, value, value_size], axis=1), after


def _header_lists(
    raw: bytes, edges: npt.NDArray[np.int32], spans: Longs, none: npt.NDArray[np.bool_]
) -> Any:
    count = len(spans)
    laid = np.empty(4 * count + 1, np.int32)
    laid[0:-1:4], laid[1:-1:4] = spans[:, 0], spans[:, 0] + spans[:, 1]
    laid[2:-1:4], laid[3:-1:4] = spans[:, 2], spans[:, 2] + np.maximum(spans[:, 3], 0)
    laid[-1] = laid[-2] if count else 0
    index = np.arange(count, dtype=np.int64) * 4
    names = _take(raw, laid, index, spans[:, 1] < 0)
    values = _take(raw, laid, index + 2, spans[:, 3] < 0)
    try:
        texts = names.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptRecords("a header's name is not UTF-8") from error
    pairs = pa.StructArray.from_arrays([texts, values], fields=list(HEADERS.value_type))
    offsets: Any = pa.array(edges, mask=np.append(none, np.bool_(False)))
    return pa.ListArray.from_arrays(offsets, pairs, type=HEADERS)
