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


def record_positions(data: bytes, array: Bytes, position: int, end: int, count: int) -> Longs:
    """Where each of `count` records begins, its length included; they fill the bytes up to `end`.

    Each length must be known before the next is found, so this is the one loop over records in
    Python. It is tried with lengths of one or two bytes (records of less than 8 KiB), which numpy
    then confirms; only where a longer one is found every byte is looked at.
    """
    found = np.array(_short_lengths(data, position, count), np.int64)
    if not _are_short(array, found, end):
        found = np.array(_any_lengths(data, position, count), np.int64)
    if found[-1] != end:
        raise CorruptRecords(f"{count} records end at byte {found[-1]}, the batch at {end}")
    return found[:-1]


def _short_lengths(data: bytes, at: int, count: int) -> list[int]:
    # Two bytes: (low | high << 7) >> 1 and the two themselves, the top bit of the first taken off.
    try:
        return [
            at,
            *[
                at := at + 1 + (data[at] >> 1)
                if data[at] < 0x80
                else at + (data[at] >> 1) + (data[at + 1] << 6) - 62
                for _ in repeat(None, count)
            ],
        ]
    except IndexError:
        return []


def _are_short(array: Bytes, found: Longs, end: int) -> bool:
    """Has no length more than two bytes?"""
    if len(found) < 2 or found[-1] != end:
        return False
    starts = found[:-1]
    seconds = np.minimum(starts + 1, len(array) - 1)
    return not (array[starts] & array[seconds] & 0x80).any()


def _any_lengths(data: bytes, position: int, count: int) -> list[int]:
    found = [position]
    try:
        for _ in repeat(None, count):
            value = shift = 0
            while data[position] >= 0x80:
                value |= (data[position] & 0x7F) << shift
                shift += 7
                position += 1
            position += 1 + ((value | data[position] << shift) >> 1)
            found.append(position)
    except IndexError as error:
        raise CorruptRecords("a record reaches beyond its batch") from error
    return found
