"""Record batches of any kind, made from rows: codecs, headers, nulls, markers."""

from collections.abc import Sequence
from typing import NamedTuple

import cramjam

from chronik.wire.records import (
    CONTROL_FLAG,
    HEADER,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    TRANSACTIONAL_FLAG,
    batch_crc,
)

Header = tuple[str, bytes | None]
COMMIT, ABORT = 1, 0


class Row(NamedTuple):
    """A record to be."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp_delta: int = 0
    offset_delta: int | None = None


def batch(
    rows: Sequence[Row],
    base_offset: int = 0,
    *,
    codec: int = 0,
    append_time: bool = False,
    producer_id: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_ms: int = 1_700_000_000_000,
) -> bytes:
    """One batch; offset deltas that are not given count up."""
    deltas = [row.offset_delta if row.offset_delta is not None else i for i, row in enumerate(rows)]
    records = [_record(row, delta) for row, delta in zip(rows, deltas, strict=True)]
    body = compress(codec, b"".join(_zigzag(len(one)) + one for one in records))
    flags = LOG_APPEND_TIME_FLAG * append_time
    flags |= TRANSACTIONAL_FLAG * transactional | CONTROL_FLAG * control
    data = bytearray(HEADER.size) + body
    fields = [base_offset, len(data) - LENGTH_OVERHEAD, 0, MAGIC, 0, codec | flags, max(deltas)]
    fields += [timestamp_ms, timestamp_ms + 5_000, producer_id, 0, 0, len(rows)]
    HEADER.pack_into(data, 0, *fields)
    fields[4] = batch_crc(data)
    HEADER.pack_into(data, 0, *fields)
    return bytes(data)


def marker(kind: int, base_offset: int, producer_id: int) -> bytes:
    """The end of a transaction."""
    row = Row(b"\0\0" + kind.to_bytes(2, "big"), b"\0\0\0\0\0\0")
    return batch([row], base_offset, producer_id=producer_id, transactional=True, control=True)


def compress(codec: int, data: bytes) -> bytes:
    """As producers do it."""
    match codec:
        case 1:
            return bytes(cramjam.gzip.compress(data))
        case 2:
            return bytes(cramjam.snappy.compress_raw(data))
        case 3:
            return bytes(cramjam.lz4.compress(data))
        case 4:
            return bytes(cramjam.zstd.compress(data))
        case _:
            return data


def _record(row: Row, offset_delta: int) -> bytes:
    parts = [b"\0", _zigzag(row.timestamp_delta), _zigzag(offset_delta)]
    parts += [_bytes(row.key), _bytes(row.value), _zigzag(len(row.headers))]
    for name, value in row.headers:
        parts += [_bytes(name.encode()), _bytes(value)]
    return b"".join(parts)


def _bytes(data: bytes | None) -> bytes:
    return _zigzag(-1) if data is None else _zigzag(len(data)) + data


def _zigzag(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
