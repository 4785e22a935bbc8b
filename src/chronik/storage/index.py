"""The sparse indexes of one segment: offset to position, and time to offset.

As in Kafka an entry is added about every `index.interval.bytes`. An entry of the offset index
names a batch's base offset and position. An entry (T, offset) of the time index says: the largest
timestamp before the next entry's batch is T, first seen in the batch at `offset`; T only grows.

Both files begin with the same header, which says how much of the log they describe, so that a
missing, torn, stale or too long index is noticed and built again from the log:

    0     4         6            8             16         24            32
    | magic| version | entry size | base offset | log size | next offset | first timestamp |
    40              48                       56      60         64
    | max timestamp | offset of max timestamp | count | body CRC | header CRC | body...

The body holds one column after the other (offsets, positions; or times, offsets), big-endian. CRCs
are CRC-32C. Offsets are relative to the base offset.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple, Self

from chronik.model.crc import crc32c
from chronik.wire.records import NO_TIMESTAMP, Buffer

OFFSET_MAGIC = b"CHIX"
TIME_MAGIC = b"CHTX"
VERSION = 1
HEADER = struct.Struct(">4sHHqqqqqqIII")
HEADER_SIZE = HEADER.size
OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
_CRC = struct.Struct(">I")
RELATIVE_OFFSET_MAX = 2**31 - 1
TAIL_BATCHES_MAX = 1024
"""More of them lie between two entries only where a topic has a very long index interval."""


class Summary(NamedTuple):
    """What the header of an index file says about the log file it belongs to."""

    base_offset: int
    log_size: int
    next_offset: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int


class Span(NamedTuple):
    """One batch in a segment, as much of it as the indexes need."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    position: int
    size: int


class IndexFile(NamedTuple):
    """A decoded header: whether the body matches it is known once the body is read."""

    magic: bytes
    summary: Summary
    entries: int
    body_crc: int


class SegmentIndex:
    """Both indexes of one segment, in memory."""

    __slots__ = (
        "_last_entry_position",
        "base_offset",
        "first_timestamp",
        "log_size",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offsets",
        "positions",
        "tail_offsets",
        "tail_positions",
        "time_offsets",
        "times",
    )

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.log_size = 0
        self.next_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")
        self.times = array("q")
        self.time_offsets = array("I")
        self._last_entry_position = 0
        self.tail_offsets = array("I")
        """Every batch since the last entry, in memory only: consumers mostly read the newest."""
        self.tail_positions = array("I")

    @property
    def summary(self) -> Summary:
        """What the file headers will say."""
        return Summary(
            self.base_offset,
            self.log_size,
            self.next_offset,
            self.first_timestamp,
            self.max_timestamp,
            self.max_timestamp_offset,
        )

    @property
    def bytes_used(self) -> int:
        """Bytes of the larger file's body: what `segment.index.bytes` bounds."""
        return max(len(self.offsets) * OFFSET_ENTRY_SIZE, len(self.times) * TIME_ENTRY_SIZE)

    @property
    def memory(self) -> int:
        """Bytes of the entries in memory."""
        return len(self.offsets) * OFFSET_ENTRY_SIZE + len(self.times) * TIME_ENTRY_SIZE

    def add(self, span: Span, interval: int) -> None:
        """Takes note of the next batch; every `interval` bytes it becomes an entry."""
        base_offset, last_offset, max_timestamp, position, size = span
        assert position == self.log_size, "batches are indexed in the order of the log"
        assert base_offset >= self.next_offset
        if position - self._last_entry_position > interval:
            self._add_entry(span)
        if not position:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = base_offset
        if len(self.tail_offsets) == TAIL_BATCHES_MAX:
            del self.tail_offsets[:], self.tail_positions[:]
        relative = base_offset - self.base_offset
        self.tail_offsets.append(max(0, relative))
        self.tail_positions.append(position)
        self.log_size = position + size
        self.next_offset = last_offset + 1

    def _add_entry(self, span: Span) -> None:
        self.offsets.append(span.base_offset - self.base_offset)
        self.positions.append(span.position)
        self._last_entry_position = span.position
        del self.tail_offsets[:], self.tail_positions[:]
        if self.max_timestamp > (self.times[-1] if self.times else NO_TIMESTAMP):
            self.times.append(self.max_timestamp)
            self.time_offsets.append(self.max_timestamp_offset - self.base_offset)

    def tail_position(self, offset: int) -> int | None:
        """Where the batch that holds `offset` begins, if it is one of the newest."""
        entry = bisect_right(self.tail_offsets, offset - self.base_offset) - 1
        return self.tail_positions[entry] if entry >= 0 else None

    def start_of(self, offset: int) -> int | None:
        """Where the batch that holds `offset` begins, if that is known: it is one of the newest, or
        begins with that offset and has an entry. So do those of who reads batch after batch."""
        tail = self.tail_position(offset)
        if tail is not None:
            return tail
        relative = offset - self.base_offset
        entry = bisect_left(self.offsets, relative)
        if entry < len(self.offsets) and self.offsets[entry] == relative:
            return self.positions[entry]
        return None if relative else 0

    def batches_since(self, offset: int) -> int | None:
        """How many batches begin at or beyond `offset`, if all of them are among the newest."""
        if offset >= self.next_offset:
            return 0
        first = bisect_left(self.tail_offsets, offset - self.base_offset)
        newer = self.tail_offsets[first:]
        is_all = first > 0 or (newer and newer[0] == offset - self.base_offset)
        return len(newer) if is_all else None

    def position_of(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        tail = self.tail_position(offset)
        if tail is not None:
            return tail
        entry = bisect_right(self.offsets, offset - self.base_offset) - 1
        return self.positions[entry] if entry >= 0 else 0

    def batch_start(self, position: int) -> int:
        """Where a batch begins, at or before `position`: the last such place that is known."""
        for starts in (self.tail_positions, self.positions):
            entry = bisect_right(starts, position) - 1
            if entry >= 0:
                return starts[entry]
        return 0

    def offset_before(self, timestamp: int) -> int:
        """An offset at or before the first record as young as `timestamp`."""
        entry = bisect_left(self.times, timestamp) - 1
        return self.base_offset + (self.time_offsets[entry] if entry >= 0 else 0)

    def copy(self) -> Self:
        """An index of its own, to be added to while this one is read."""
        twin = type(self)(self.base_offset)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(twin, name, value[:] if isinstance(value, array) else value)
        return twin

    def cut(self, position: int) -> Self:
        """The index as it was when the log ended at some entry at or before `position`.

        Its `log_size` says where; the batches from there to `position` are to be added again.
        """
        keep = max(bisect_left(self.positions, position) - 1, 0)
        if not keep or position <= self.positions[0]:
            return type(self)(self.base_offset)
        twin = self.copy()
        resume_offset = twin.offsets[keep]
        times = bisect_left(twin.time_offsets, resume_offset)
        twin.log_size = twin.positions[keep]
        twin.next_offset = self.base_offset + resume_offset
        del (
            twin.offsets[keep:],
            twin.positions[keep:],
            twin.times[times:],
            twin.time_offsets[times:],
            twin.tail_offsets[:],
            twin.tail_positions[:],
        )
        twin._last_entry_position = twin.positions[-1]
        twin.max_timestamp = twin.times[-1] if twin.times else NO_TIMESTAMP
        twin.max_timestamp_offset = self.base_offset + (twin.time_offsets[-1] if twin.times else 0)
        return twin

    def encode(self) -> tuple[bytes, bytes]:
        """The bytes of the offset index file and of the time index file."""
        offsets = _columns(self.offsets, self.positions)
        times = _columns(self.times, self.time_offsets)
        return (
            _encode(OFFSET_MAGIC, OFFSET_ENTRY_SIZE, self.summary, len(self.offsets), offsets),
            _encode(TIME_MAGIC, TIME_ENTRY_SIZE, self.summary, len(self.times), times),
        )

    @classmethod
    def decode(cls, offset_file: Buffer, time_file: Buffer) -> Self | None:
        """The index that was encoded; None where a byte of the files is not as it was written."""
        offset_index, time_index = decode_header(offset_file), decode_header(time_file)
        if offset_index is None or time_index is None:
            return None
        if (offset_index.magic, time_index.magic) != (OFFSET_MAGIC, TIME_MAGIC):
            return None
        if offset_index.summary != time_index.summary:
            return None
        index = cls(offset_index.summary.base_offset)
        if not index._fill(offset_index, offset_file, time_index, time_file):
            return None
        return index

    def _fill(self, offsets: IndexFile, data: Buffer, times: IndexFile, time_data: Buffer) -> bool:
        body, time_body = bytes(data[HEADER_SIZE:]), bytes(time_data[HEADER_SIZE:])
        if not (body_is_whole(offsets, body) and body_is_whole(times, time_body)):
            return False
        _, self.log_size, self.next_offset, *timestamps = offsets.summary
        self.first_timestamp, self.max_timestamp, self.max_timestamp_offset = timestamps
        self.offsets = _column("I", body[: offsets.entries * 4])
        self.positions = _column("I", body[offsets.entries * 4 :])
        self.times = _column("q", time_body[: times.entries * 8])
        self.time_offsets = _column("I", time_body[times.entries * 8 :])
        self._last_entry_position = self.positions[-1] if self.positions else 0
        return True


def decode_header(data: Buffer) -> IndexFile | None:
    """The header of an index file of either kind; None where it is not whole."""
    if len(data) < HEADER_SIZE:
        return None
    magic, version, entry_size, *fields, count, body_crc, header_crc = HEADER.unpack_from(data)
    if crc32c(bytes(data[: HEADER_SIZE - _CRC.size])) != header_crc or version != VERSION:
        return None
    if entry_size != {OFFSET_MAGIC: OFFSET_ENTRY_SIZE, TIME_MAGIC: TIME_ENTRY_SIZE}.get(magic):
        return None
    return IndexFile(magic, Summary(*fields), count, body_crc)


def body_size(file: IndexFile) -> int:
    """Bytes that must follow the header."""
    return file.entries * (OFFSET_ENTRY_SIZE if file.magic == OFFSET_MAGIC else TIME_ENTRY_SIZE)


def decode_pairs(file: IndexFile, body: bytes) -> list[tuple[int, int]]:
    """The entries, (relative offset, position) or (timestamp, relative offset)."""
    typecode, width = ("I", 4) if file.magic == OFFSET_MAGIC else ("q", 8)
    edge = file.entries * width
    return list(zip(_column(typecode, body[:edge]), _column("I", body[edge:]), strict=True))


def body_is_whole(file: IndexFile, body: bytes) -> bool:
    """True where size and CRC of the body are what the header says."""
    return len(body) == body_size(file) and crc32c(body) == file.body_crc


def _encode(magic: bytes, entry_size: int, summary: Summary, count: int, body: bytes) -> bytes:
    head = HEADER.pack(magic, VERSION, entry_size, *summary, count, crc32c(body), 0)[: -_CRC.size]
    return b"".join((head, _CRC.pack(crc32c(head)), body))


def _columns(*columns: "array[int]") -> bytes:
    return b"".join(_big_endian(column).tobytes() for column in columns)


def _column(typecode: str, data: bytes) -> "array[int]":
    column: array[int] = array(typecode)
    column.frombytes(data)
    return _big_endian(column)


def _big_endian(column: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
