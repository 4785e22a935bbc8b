"""Record batches to Arrow, without a Python object per record.

`varints.record_positions` finds where records begin, `fields.read_fields` where their keys and
values lie. One Arrow array is laid over the untouched bytes with the offsets [key start, key end,
next key start, ...]: its elements are keys and gaps, and `take` copies the keys out in C++; the
values in the same way. Columns that nobody asked for are not made, and where the batch headers say
all that is wanted no record is looked at. The columns are those of Spark's Kafka source.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.pipeline.fields import Fields, read_fields, sized
from chronik.pipeline.varints import Bytes, Longs, read_varints, record_positions
from chronik.wire.record_iter import CorruptRecords, decompress
from chronik.wire.records import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Buffer,
    batch_crc,
    read_header,
    read_prefix,
    scan,
)

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
_OF_HEADERS = frozenset({"topic", "partition", "offset", "timestampType"})
"""Columns that need no record where a batch has no holes."""
_RECORD_BYTES_MIN = 6
"""Attributes, two deltas, two lengths and a count: so many records at most are in so many bytes."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """One aborted transaction, as a Fetch answer of isolation level read_committed names it."""

    producer_id: int
    first_offset: int


@dataclass(slots=True)
class _Body:
    """The uncompressed records of the batches that are wanted, and where they lie in `data`."""

    data: Buffer
    starts: list[int]
    ends: list[int]


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
    batches = list(_readable(_within(data, start, end), data, aborted))
    headers = [header for _, header in batches]
    if _OF_HEADERS.issuperset(columns) and all(map(_is_dense, headers)):
        rows = _from_headers(headers, start, end)
    else:
        rows = _from_records(_body(data, batches), headers, start, end)
    return rows.batch(topic, partition, columns)


def next_offset(data: Buffer, default: int) -> int:
    """The offset after the last whole batch: where the next Fetch begins, holes included."""
    position, last = 0, -1
    while position + HEADER_SIZE <= len(data):
        _, size = read_prefix(data, position)  # a fraction of the work of a whole header
        if size < HEADER_SIZE or position + size > len(data):
            break
        last, position = position, position + size
    return default if last < 0 else max(default, read_header(data, last).next_offset)


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


def _body(data: Buffer, batches: Sequence[tuple[int, BatchHeader]]) -> _Body:
    if all(header.codec == 0 for _, header in batches):
        starts = [position + HEADER_SIZE for position, _ in batches]
        return _Body(data, starts, [position + header.size for position, header in batches])
    parts = [decompress(h.codec, data[p + HEADER_SIZE : p + h.size]) for p, h in batches]
    ends = list(accumulate(map(len, parts)))
    return _Body(b"".join(parts), [0, *ends[:-1]], ends)


# -- rows


@dataclass(slots=True)
class _Rows:
    """The numbers of each record, and its fields if they were read."""

    offset: Longs
    timestamp_type: npt.NDArray[np.int32]
    timestamp_ms: Longs | None = None
    fields: Fields | None = None
    data: Buffer = b""

    def batch(self, topic: str, partition: int, columns: Sequence[str]) -> pa.RecordBatch:
        """The columns as Arrow."""
        count = len(self.offset)
        makers: dict[str, Callable[[], Any]] = {
            "key": self._keys,
            "value": self._values,
            "topic": lambda: pa.repeat(pa.scalar(topic, pa.string()), count),
            "partition": lambda: pa.array(np.full(count, partition, np.int32)),
            "offset": lambda: pa.array(self.offset),
            "timestamp": self._timestamps,
            "timestampType": lambda: pa.array(self.timestamp_type),
            "headers": self._headers,
        }
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        return pa.record_batch([makers[name]() for name in columns], schema=schema)

    def _timestamps(self) -> Any:
        assert self.timestamp_ms is not None
        return pa.array(self.timestamp_ms * 1000).view(SCHEMA.field("timestamp").type)

    def _keys(self) -> Any:
        assert self.fields is not None
        return _binary(self.data, self.fields.key_start, self.fields.key_size)

    def _values(self) -> Any:
        assert self.fields is not None
        return _binary(self.data, self.fields.value_start, self.fields.value_size)

    def _headers(self) -> Any:
        assert self.fields is not None
        if not self.fields.header_count.any():
            return pa.nulls(len(self.offset), HEADERS)
        return _headers(np.frombuffer(self.data, np.uint8), self.data, self.fields)


def _is_dense(header: BatchHeader) -> bool:
    """Is there a record for each of the batch's offsets? Then the offsets are known without it."""
    return header.record_count == header.last_offset_delta + 1


def _from_headers(batches: Sequence[BatchHeader], start: int, end: int) -> _Rows:
    """Nothing is decoded, nor even decompressed: what the batch headers say is enough."""
    firsts = np.array([max(start, one.base_offset) for one in batches], np.int64)
    lasts = np.array([min(end, one.next_offset) for one in batches], np.int64)
    counts = np.maximum(lasts - firsts, 0)
    before = np.cumsum(counts) - counts
    offset = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(firsts - before, counts)
    return _Rows(offset, _timestamp_types(batches, counts))


def _from_records(body: _Body, batches: Sequence[BatchHeader], start: int, end: int) -> _Rows:
    array = np.frombuffer(body.data, np.uint8)
    counts = np.array([one.record_count for one in batches], np.int64)
    positions = record_positions(array, body.starts, body.ends, counts.tolist())
    ends = np.append(positions[1:], 0)
    filled = counts > 0
    ends[np.cumsum(counts)[filled] - 1] = np.array(body.ends, np.int64)[filled]
    fields = read_fields(array, positions, ends)
    offset = _each([one.base_offset for one in batches], counts) + fields.offset_delta
    timestamp = _timestamps(batches, counts, fields.timestamp_delta)
    rows = _Rows(offset, _timestamp_types(batches, counts), timestamp, fields, body.data)
    if any(one.base_offset < start or one.next_offset > end for one in batches):
        return _cut(rows, (offset >= start) & (offset < end))
    return rows


def _cut(rows: _Rows, keep: npt.NDArray[np.bool_]) -> _Rows:
    assert rows.fields is not None
    assert rows.timestamp_ms is not None
    kept = rows.fields.where(keep)
    times, types = rows.timestamp_ms[keep], rows.timestamp_type[keep]
    return _Rows(rows.offset[keep], types, times, kept, rows.data)


def _each(values: Sequence[int], counts: Longs) -> Longs:
    return np.repeat(np.array(values, np.int64), counts)


def _timestamp_types(batches: Sequence[BatchHeader], counts: Longs) -> npt.NDArray[np.int32]:
    return _each([int(one.is_log_append_time) for one in batches], counts).astype(np.int32)


def _timestamps(batches: Sequence[BatchHeader], counts: Longs, delta: Longs) -> Longs:
    base = [h.max_timestamp if h.is_log_append_time else h.base_timestamp for h in batches]
    factor = [0 if h.is_log_append_time else 1 for h in batches]
    if all(factor):
        return _each(base, counts) + delta
    return _each(base, counts) + _each(factor, counts) * delta


# -- columns of bytes


def _binary(data: Buffer, start: Longs, size: Longs) -> Any:
    """The fields at these places as one Arrow array."""
    edges = np.empty((len(start), 2), np.int32)
    edges[:, 0] = start
    np.add(start, np.maximum(size, 0), out=edges[:, 1], casting="unsafe")
    return _take(data, edges.ravel(), 2, size < 0)


def _take(
    data: Buffer, edges: npt.NDArray[np.int32], step: int, absent: npt.NDArray[np.bool_]
) -> Any:
    """Every `step`th of the elements between the edges, copied out in C++."""
    rows = len(absent)
    if not rows:
        return pa.array([], pa.binary())
    view: Any = edges
    buffers = [None, pa.py_buffer(view), pa.py_buffer(data)]
    laid = pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)
    index = np.arange(0, rows * step, step, dtype=np.int32)
    wanted: Any = pa.array(index, mask=absent if absent.any() else None)
    return laid.take(wanted)


def _headers(data: Bytes, raw: Buffer, fields: Fields) -> Any:
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
    after = value + sized(value_size)
    if (after > end).any():
        raise CorruptRecords("a header reaches beyond its record")
    return np.stack([name, name_size, value, value_size], axis=1), after


def _header_lists(
    raw: Buffer, edges: npt.NDArray[np.int32], spans: Longs, none: npt.NDArray[np.bool_]
) -> Any:
    names = _binary(raw, spans[:, 0], spans[:, 1])
    values = _binary(raw, spans[:, 2], spans[:, 3])
    try:
        texts = names.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptRecords("a header's name is not UTF-8") from error
    pairs = pa.StructArray.from_arrays([texts, values], fields=list(HEADERS.value_type))
    offsets: Any = pa.array(edges, mask=np.append(none, np.bool_(False)))
    return pa.ListArray.from_arrays(offsets, pairs, type=HEADERS)
