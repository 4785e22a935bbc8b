"""Where the fields of records lie, for all records at once.

Nearly every number of a record has one or two bytes: the first byte of all records is gathered,
then the second of all, and they are put together in the narrowest type, which is many times faster
than 64 bits each. Records for which that does not work (a length of three bytes, a batch over more
than 17 minutes) are read varint by varint.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chronik.pipeline.varints import Bytes, Longs, read_varints
from chronik.wire.record_iter import CorruptRecords

Flags = npt.NDArray[np.bool_]
_CHUNK_ROWS = 16_384
"""The arrays of so many rows stay in the processor's cache from one operation to the next."""
_FIELD_BYTES_MAX = 1 << 31


@dataclass(slots=True)
class Fields:
    """Per record: its numbers, and where its key, value and headers begin and end."""

    timestamp_delta: Longs
    offset_delta: Longs
    key_start: Longs
    key_size: Longs
    """-1: null."""
    value_start: Longs
    value_size: Longs
    header_count: Longs
    headers: Longs
    """Position of the first header, after the count."""
    end: Longs

    def where(self, keep: Flags) -> "Fields":
        """Some of the records."""
        return Fields(*(getattr(self, name)[keep] for name in Fields.__slots__))


def read_fields(data: Bytes, positions: Longs, ends: Longs) -> Fields:
    """The fields of the records that begin, with their length, at `positions`."""
    found = np.empty((len(Fields.__slots__), len(positions)), np.int64)
    odd: list[Longs] = []
    for first in range(0, len(positions), _CHUNK_ROWS):
        rows = slice(first, first + _CHUNK_ROWS)
        odd.append(first + _fast(data, positions[rows], ends[rows], found[:, rows]))
    rest = np.concatenate([np.zeros(0, np.int64), *odd])
    if len(rest):
        found[:, rest] = _slow(data, positions[rest], ends[rest])
    return Fields(*found)


# -- narrow


def _fast(data: Bytes, start: Longs, end: Longs, into: Longs) -> Longs:
    """Fills the columns of `into` and returns the rows that are not right."""
    _, at, bad = _upto_two(data, start)  # the length
    at += 1  # the attributes, which say nothing
    into[0], at, wrong = _upto_three(data, at)
    bad |= wrong
    into[1], at, wrong = _upto_two(data, at)
    bad |= wrong
    for size, begin in ((3, 2), (5, 4)):  # key, value
        into[size], into[begin], wrong = _upto_two(data, at)
        bad |= wrong | (into[size] < -1)
        at = into[begin] + np.maximum(into[size], 0)
    count = data.take(at, mode="clip")
    at += 1
    into[6], into[7], into[8] = count >> 1, at, end
    bad |= count & 0x81 != 0
    bad |= at > end
    bad |= (count == 0) & (at != end)
    if count.any():
        bad |= into[6] * 2 > end - at
    return np.flatnonzero(bad)


def _upto_two(data: Bytes, at: Longs) -> tuple[npt.NDArray[Any], Longs, Flags]:
    """The varint at each place, the place after it, and whether it is of more bytes."""
    low = data.take(at, mode="clip")
    two = low >> 7
    after = at + 1
    if not two.any():
        return _signed(low), after, two.view(np.bool_)
    high = data.take(after, mode="clip")
    after += two
    value = (low & 0x7F).astype(np.uint16)
    value |= (high * two).astype(np.uint16) << 7
    return _signed(value), after, (two & (high >> 7)).view(np.bool_)


def _upto_three(data: Bytes, at: Longs) -> tuple[npt.NDArray[Any], Longs, Flags]:
    """The same for numbers that may be longer."""
    value, after, more = _upto_two(data, at)
    if not more.any():
        return value, after, more
    low, high, top = (data.take(at + place, mode="clip").astype(np.uint32) for place in range(3))
    three = more.view(np.uint8)
    long = (low & 0x7F) | ((high & 0x7F) << 7) | (top << 14)
    after += three
    return np.where(more, _signed(long), value), after, more & (top > 0x7F)


def _signed(zigzag: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of the same width: -1 is stored as 1."""
    kind = zigzag.dtype.type
    flipped = (zigzag >> kind(1)) ^ (kind(0) - (zigzag & kind(1)))
    signed: npt.NDArray[Any] = flipped.view(f"i{zigzag.itemsize}")
    return signed


# -- varint by varint


def _slow(data: Bytes, positions: Longs, ends: Longs) -> Longs:
    _, starts = read_varints(data, positions)
    timestamp, at = read_varints(data, starts + 1)
    offset, at = read_varints(data, at)
    key_size, key_start = read_varints(data, at)
    value_size, value_start = read_varints(data, key_start + sized(key_size))
    count, headers = read_varints(data, value_start + sized(value_size))
    bad = (headers > ends) | (count < 0) | ((count == 0) & (headers != ends))
    bad |= count * 2 > ends - headers
    if bad.any():
        number = int(offset[np.argmax(bad)])
        raise CorruptRecords(f"the fields of record {number} of a batch do not fit its length")
    columns = [timestamp, offset, key_start, key_size, value_start, value_size, count, headers]
    return np.stack([*columns, ends])


def sized(sizes: Longs) -> Longs:
    """Bytes that a nullable field takes: -1 stands for null, which takes none."""
    if len(sizes) and not -1 <= int(sizes.min()) <= int(sizes.max()) < _FIELD_BYTES_MAX:
        raise CorruptRecords("a field of a length that cannot be")
    return np.maximum(sizes, 0)
