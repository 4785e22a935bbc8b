"""Zigzag varints of many records at once, and where records begin."""

from collections.abc import Sequence
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from chronik.wire.record_iter import CorruptRecords

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]
VARINT_BYTES_MAX = 10
_NONE = np.zeros(0, np.int64)
_BATCHES_MIN = 24
"""So many batches on average are worth a step of numpy; fewer are walked one by one."""


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
    time. Few ones are walked in Python.
    """
    stepped = _in_step(array, starts, ends, counts)
    if stepped is not None:
        return stepped
    raw = array.tobytes()  # bytes are indexed fastest
    walked = [_walked(raw, array, *one) for one in zip(starts, ends, counts, strict=True)]
    return np.concatenate([_NONE, *walked])


def _advances() -> Longs:
    """How far the next record is, by the first two bytes of this one (little-endian)."""
    word = np.arange(1 << 16, dtype=np.int64)
    two = (word >> 7) & 1
    length = ((word & 0x7F) | ((word >> 1) & 0x3F80) * two) >> 1
    # A length of three bytes leads out of any data: that walk is done in the other way.
    return np.where(two & (word >> 15), _FAR, length + 1 + two)


_FAR = 1 << 48
_ADVANCES = _advances()


def _in_step(
    array: Bytes, starts: Sequence[int], ends: Sequence[int], counts: Sequence[int]
) -> Longs | None:
    """None where few batches, or a length of more than two bytes, make the other way better."""
    sizes = np.array(counts, np.int64)
    total, steps = int(sizes.sum()), int(sizes.max(initial=0))
    if total < _BATCHES_MIN * max(steps, 1) or 0 in counts:
        return None
    try:
        found = _stepped(array, np.array(starts, np.int64), sizes, total)
        last = found[np.cumsum(sizes) - 1]
        reached = last + _ADVANCES[_pairs(array)[last]]
    except IndexError:  # a length points out of the bytes
        return None
    return found if (reached == np.array(ends, np.int64)).all() else None


def _stepped(array: Bytes, starts: Longs, sizes: Longs, total: int) -> Longs:
    """Row by row: the first records of all batches, then the second ones."""
    order = np.argsort(-sizes, kind="stable")
    # Batches are sorted by size: those that still have a record are the first ones.
    left = np.searchsorted(-sizes[order], -np.arange(int(sizes.max())), side="left")
    edges = [0, *np.cumsum(left).tolist()]
    pairs, found = _pairs(array), np.empty(total, np.int64)
    at = found[: len(starts)]
    at[:] = starts[order]
    for first, end in pairwise(edges[1:]):
        at = at[: end - first]
        at = np.add(at, _ADVANCES.take(pairs[at]), out=found[first:end])
    return _by_batch(found, order, sizes, np.array(edges[:-1]))


def _by_batch(found: Longs, order: Longs, sizes: Longs, rows: Longs) -> Longs:
    """What was found row by row, in the order of the batches; rows[i]: where row i begins."""
    if len(rows) * len(sizes) == len(found):
        return found.reshape(len(rows), len(sizes)).T.ravel()
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    number = np.arange(len(found)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return found[rows[number] + np.repeat(rank, sizes)]


def _pairs(array: Bytes) -> npt.NDArray[np.uint16]:
    """Each byte with the one after it."""
    return np.ndarray((len(array) - 1,), "<u2", array, strides=(1,))


def _walked(data: bytes, array: Bytes, position: int, end: int, count: int) -> Longs:
    """One batch, tried with lengths of one or two bytes (records of less than 8 KiB)."""
    found = np.array(_short_lengths(data, position, count), np.int64)
    if not len(found) or found[-1] != end or not _are_short(array, found[:-1]):
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


def _are_short(array: Bytes, starts: Longs) -> bool:
    """Has no length more than two bytes?"""
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
