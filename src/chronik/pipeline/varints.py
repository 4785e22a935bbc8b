"""Zigzag varints of many records at once: one numpy pass per byte of the longest."""

from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from chronik.wire.record_iter import CorruptRecords

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]
VARINT_BYTES_MAX = 10


def read_varints(data: Bytes, positions: Longs) -> tuple[Longs, Longs]:
    """The varint at each position, and the positions after them."""
    try:
        return _read(data, positions)
    except IndexError as error:
        raise CorruptRecords("a varint reaches beyond the records") from error


def _read(data: Bytes, positions: Longs) -> tuple[Longs, Longs]:
    byte: npt.NDArray[Any] = data[positions]
    after = positions + 1
    rest = np.flatnonzero(byte & 0x80)
    value = byte.astype(np.int64)
    if not len(rest):
        return (value >> 1) ^ -(value & 1), after
    value[rest] &= 0x7F
    shift = 7
    while len(rest):
        if shift >= 7 * VARINT_BYTES_MAX:
            raise CorruptRecords("a varint of more than ten bytes")
        byte = data[after[rest]]
        value[rest] |= (byte & 0x7F).astype(np.int64) << shift
        after[rest] += 1
        rest = rest[byte >= 0x80]
        shift += 7
    # The shift right of a zigzag number is one without a sign.
    halved = (value.view(np.uint64) >> np.uint64(1)).view(np.int64)
    return halved ^ -(value & 1), after


def record_positions(data: bytes, position: int, end: int, count: int) -> list[int]:
    """Where each of `count` records begins, its length included; they fill the bytes up to `end`.

    The one loop over records in Python: each length must be known before the next is found.
    """
    found: list[int] = []
    append = found.append
    try:
        for _ in repeat(None, count):
            append(position)
            first = data[position]
            if first < 0x80:
                position += 1 + (first >> 1)
                continue
            second = data[position + 1]
            if second < 0x80:
                position += 2 + ((first & 0x7F | second << 7) >> 1)
            else:
                position = _after_long(data, position)
    except IndexError as error:
        raise CorruptRecords("a record reaches beyond its batch") from error
    if position != end:
        raise CorruptRecords(f"{count} records end at byte {position}, the batch at {end}")
    return found


def _after_long(data: bytes, position: int) -> int:
    value = shift = 0
    while data[position] >= 0x80:
        value |= (data[position] & 0x7F) << shift
        shift += 7
        position += 1
    return position + 1 + ((value | data[position] << shift) >> 1)
