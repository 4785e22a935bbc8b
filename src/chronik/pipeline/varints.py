"""Zigzag varints of many records at once, and where records begin."""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from chronik.wire.record_iter import CorruptRecords

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]
VARINT_BYTES_MAX = 10
_NONE = np.zeros(0, np.int64)
_BATCHES_MIN = 24
"""So many batches are worth a step of numpy per record; fewer are walked one by one."""


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


# -- where records begin: each length must be known before the next is found


def record_positions(
    array: Bytes, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]
) -> Longs:
    """Where each record begins, its length included; batch i fills the bytes up to ends[i].

    Batches do not depend on each other, so many of them are walked in step, one record of each at a
    time. Only batches that differ much from the others, and few ones, are walked in Python.
    """
    found: list[Longs | None] = [None] * len(starts)
    for index, positions in _in_step(array, starts, ends, counts):
        found[index] = positions
    raw = None
    for index, known in enumerate(found):
        if known is None:
            raw = array.tobytes() if raw is None else raw  # bytes are indexed fastest
            found[index] = _walked(raw, array, starts[index], ends[index], counts[index])
    return np.concatenate([_NONE, *(one for one in found if one is not None)])


def _advances() -> Longs:
    """How far the next record is, by the first two bytes of this one (little-endian)."""
    word = np.arange(1 << 16, dtype=np.int64)
    two = (word >> 7) & 1
    length = ((word & 0x7F) | ((word >> 1) & 0x3F80) * two) >> 1
    return length + 1 + two


_ADVANCES = _advances()


def _in_step(
    array: Bytes, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]
) -> list[tuple[int, Longs]]:
    """(batch, positions) of the batches for which lengths of one or two bytes turn out right."""
    if len(starts) < _BATCHES_MIN:
        return []
    sizes = np.array(counts, np.int64)
    # The matrix below is as high as the largest batch: one giant must not make it huge.
    chosen = np.flatnonzero((sizes > 0) & (sizes <= 2 * int(np.median(sizes))))
    chosen = chosen[np.argsort(-sizes[chosen], kind="stable")]
    if len(chosen) < _BATCHES_MIN:
        return []
    matrix = _matrix(array, np.array(starts, np.int64)[chosen], sizes[chosen])
    if matrix is None:
        return []
    found = []
    for column, index in enumerate(chosen.tolist()):
        positions = matrix[: counts[index] + 1, column]
        if _are_short(array, positions, ends[index]):
            found.append((index, positions[:-1]))
    return found


def _matrix(array: Bytes, starts: Longs, sizes: Longs) -> Longs | None:
    """One column per batch; None where a length points out of the bytes."""
    words = np.ndarray((len(array) - 1,), "<u2", array, strides=(1,))
    # Batches are sorted by size: those that still have a record are the first ones.
    active = len(sizes) - np.searchsorted(sizes[::-1], np.arange(sizes[0]), side="right")
    matrix = np.empty((int(sizes[0]) + 1, len(starts)), np.int64)
    at = matrix[0]
    at[:] = starts
    try:
        for row, count in enumerate(active.tolist(), 1):
            at = at[:count]
            matrix[row, :count] = at = at + _ADVANCES[words[at]]
    except IndexError:
        return None
    return matrix


def _walked(data: bytes, array: Bytes, position: int, end: int, count: int) -> Longs:
    """One batch, tried with lengths of one or two bytes (records of less than 8 KiB)."""
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
