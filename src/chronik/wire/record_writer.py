"""Builds a record batch from keys and values: for the broker's own records, not the hot path."""

from collections.abc import Sequence

from chronik.wire.records import (
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    batch_crc,
)

Pair = tuple[bytes | None, bytes | None]


def build_batch(records: Sequence[Pair], timestamp_ms: int) -> bytearray:
    """One uncompressed batch, base offset 0, as a client without a producer id would send it."""
    assert records
    body = bytearray()
    for delta, (key, value) in enumerate(records):
        record = _record(delta, key, value)
        body += zigzag(len(record)) + record
    batch = bytearray(HEADER.size)
    batch += body
    fields = [
        0,
        len(batch) - LENGTH_OVERHEAD,
        -1,
        MAGIC,
        0,
        0,
        len(records) - 1,
        timestamp_ms,
        timestamp_ms,
        NO_PRODUCER_ID,
        -1,
        NO_SEQUENCE,
        len(records),
    ]
    HEADER.pack_into(batch, 0, *fields)
    fields[4] = batch_crc(batch)
    HEADER.pack_into(batch, 0, *fields)
    return batch


def _record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    return b"".join(
        (
            _NO_ATTRIBUTES_NO_DELTA,
            zigzag(offset_delta),
            zigzag(-1 if key is None else len(key)),
            key or b"",
            zigzag(-1 if value is None else len(value)),
            value or b"",
            _NO_HEADERS,
        )
    )


def zigzag(value: int) -> bytes:
    """A varint as records have them: small for small numbers of either sign."""
    if 0 <= value < len(_SMALL):
        return _SMALL[value]
    return _varint((value << 1) ^ (value >> 63))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SMALL = [_varint(value << 1) for value in range(256)]
_NO_ATTRIBUTES_NO_DELTA = b"\0\0"
_NO_HEADERS = b"\0"
