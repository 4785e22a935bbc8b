"""Where the fields of records lie, for all records at once.

The fields before the key fit into eight bytes in nearly every record, so they are read as one
word and taken apart with shifts; so are the lengths of key and value. Records for which that does
not work (a length of three bytes, a batch over more than 17 minutes) are read varint by varint.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chronik.pipeline.varints import Bytes, Longs, read_varints
from chronik.wire.record_iter import CorruptRecords

Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
_CHUNK_ROWS = 16_384
"""The arrays of so many rows stay in the processor's cache from one operation to the next."""
_WORD_BYTES = 8
_FIELD_BYTES_MAX = 1 << 31
_U = np.uint64


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


# -- as words


def _fast(data: Bytes, start: Longs, end: Longs, into: Longs) -> Longs:
    """Fills the columns of `into` and returns the rows that are not right."""
    if len(data) < _WORD_BYTES:
        return np.arange(len(start), dtype=np.int64)
    view = np.ndarray((len(data) - _WORD_BYTES + 1,), "<u8", data, strides=(1,))
    last = len(view) - 1
    word = view[np.minimum(start, last)]
    two = (word >> _U(7)) & _U(1)
    bad = two & (word >> _U(15))
    word >>= (two << _U(3)) + _U(16)  # the length, and the attributes, which say nothing
    timestamp, taken, more = _upto_three(word)
    bad |= more
    word >>= taken << _U(3)
    offset, wide, more = _upto_two(word)
    bad |= more
    key_at = start + (two + taken + wide + _U(3)).view(np.int64)
    key_start, key_size, more = _sized_at(view, last, key_at)
    bad |= more
    value_at = key_start + np.maximum(key_size, 0)
    value_start, value_size, more = _sized_at(view, last, value_at)
    bad |= more
    headers = value_start + np.maximum(value_size, 0)
    count = data[np.minimum(headers, len(data) - 1)].astype(np.int64)
    headers += 1
    wrong = (bad & _U(1)).view(np.int64).astype(np.bool_)
    wrong |= value_at > last
    wrong |= (key_size < -1) | (value_size < -1)
    wrong |= (count & 0x81 != 0) | (headers > end) | ((count == 0) & (headers != end))
    into[0] = _signed(timestamp)
    into[1] = _signed(offset)
    into[2], into[3], into[4], into[5] = key_start, key_size, value_start, value_size
    into[6], into[7], into[8] = count >> 1, headers, end
    wrong |= into[6] * 2 > end - headers
    return np.flatnonzero(wrong)


def _upto_two(word: Words) -> tuple[Words, Words, Words]:
    """The varint at the start of each word, zigzag; is it of two bytes, is it of more."""
    two = (word >> _U(7)) & _U(1)
    value = (word & _U(0x7F)) | ((word >> _U(1)) & _U(0x3F80)) * two
    return value, two, two & (word >> _U(15))


def _upto_three(word: Words) -> tuple[Words, Words, Words]:
    """The same, with the number of bytes after the first."""
    two = (word >> _U(7)) & _U(1)
    three = two & (word >> _U(15))
    value = (word & _U(0x7F)) | ((word >> _U(1)) & _U(0x3F80)) * two
    value |= ((word >> _U(2)) & _U(0x1FC000)) * three
    return value, two + three + _U(1), three & (word >> _U(23))


def _sized_at(view: Words, last: int, at: Longs) -> tuple[Longs, Longs, Words]:
    """Where the field begins whose size is at `at`, and that size."""
    value, two, more = _upto_two(view[np.minimum(at, last)])
    return at + (two + _U(1)).view(np.int64), _signed(value), more


def _signed(zigzag: Words) -> Longs:
    return ((zigzag >> _U(1)) ^ (_U(0) - (zigzag & _U(1)))).view(np.int64)


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
