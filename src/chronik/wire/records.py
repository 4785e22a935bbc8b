"""Record batches, magic 2: the 61-byte header as a value, its CRC, and what a broker may patch.

    0   base offset          8    23  last offset delta    4    51  producer epoch       2
    8   length               4    27  base timestamp       8    53  base sequence        4
    12  leader epoch         4    35  max timestamp        8    57  record count         4
    16  magic                1    43  producer id          8    61  records...
    17  crc                  4
    21  attributes           2    (position, field, bytes; big-endian)

The CRC covers everything from the attributes on, so base offset and leader epoch can be written
without touching it (and nothing else can). `length` counts the bytes after the length field.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from chronik.model.crc import crc32c

Buffer = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LENGTH_OVERHEAD = 12
"""Bytes before the part that `length` counts."""
CRC_START = 21
MAGIC_OFFSET = 16
MAGIC = 2
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

_PREFIX = struct.Struct(">qi")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40


class BatchHeader(NamedTuple):
    """The header of one record batch, in the order of its bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the batch's last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; it wraps at 2^31 as the producers' does."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        """Compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """True for data and markers of a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """True for markers, which no client is shown."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def is_log_append_time(self) -> bool:
        """True where `max_timestamp` is the broker's and stands for every record."""
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def has_producer_id(self) -> bool:
        """True for batches of idempotent and transactional producers."""
        return self.producer_id >= 0


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the caller has checked that `HEADER_SIZE` bytes are there."""
    return tuple.__new__(BatchHeader, HEADER.unpack_from(data, position))  # `_make`, a call less


def read_prefix(data: Buffer, position: int) -> tuple[int, int]:
    """Base offset and whole size of the batch at `position`: all a scan for an offset needs."""
    base_offset, length = _PREFIX.unpack_from(data, position)
    return base_offset, length + LENGTH_OVERHEAD


def batch_crc(batch: Buffer) -> int:
    """CRC-32C of one whole batch, as its header should state it."""
    view = batch if isinstance(batch, memoryview) else memoryview(batch)
    return crc32c(view[CRC_START:])


def patch(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Writes what the leader decides: both fields lie outside the CRC."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, 12, leader_epoch)


def patch_append_time(batch: bytearray | memoryview, now_ms: int) -> None:
    """Stamps the batch with the broker's time (LogAppendTime); this lies inside the CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_START)
    _ATTRIBUTES.pack_into(batch, CRC_START, attributes | LOG_APPEND_TIME_FLAG)
    _MAX_TIMESTAMP.pack_into(batch, 35, now_ms)
    _CRC.pack_into(batch, 17, batch_crc(batch))


def scan(
    data: Buffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the whole batches in `data`, up to the first torn one."""
    limit = len(data) if end is None else end
    while position + HEADER_SIZE <= limit:
        header = tuple.__new__(BatchHeader, HEADER.unpack_from(data, position))
        size = header[1] + LENGTH_OVERHEAD
        if size < HEADER_SIZE or position + size > limit:
            return
        yield position, header
        position += size
