"""Record batches by hand, right and wrong, independent of the code under test."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
DEFAULT_TIME_MS = 1_700_000_000_000


def varint(number: int) -> bytes:
    """Zigzag, seven bits per byte."""
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(value: bytes, offset_delta: int, time_delta: int = 0) -> bytes:
    """One record without key and headers."""
    body = b"\0" + varint(time_delta) + varint(offset_delta) + varint(-1)
    body += varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of magic 2; what is None is computed, what is given is written as it is."""

    values: Sequence[bytes]
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    attributes: int = 0
    time_ms: int = DEFAULT_TIME_MS
    spread_ms: int = 0
    """How much later each record is than the one before it."""
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    length: int | None = None
    crc: int | None = None
    last_offset_delta: int | None = None
    count: int | None = None

    def encode(self) -> bytes:
        """The batch's bytes."""
        spread = self.spread_ms
        records = b"".join(record(value, n, n * spread) for n, value in enumerate(self.values))
        count = len(self.values)
        delta = count - 1 if self.last_offset_delta is None else self.last_offset_delta
        last_ms = self.time_ms + spread * max(0, count - 1)
        fields = (self.attributes, delta, self.time_ms, last_ms, self.producer_id)
        more = (self.producer_epoch, self.sequence, count if self.count is None else self.count)
        covered = HEADER.pack(0, 0, 0, 0, 0, *fields, *more)[21:] + records
        length = len(covered) + 9 if self.length is None else self.length
        crc = crc32c(covered) if self.crc is None else self.crc
        start = HEADER.pack(self.base_offset, length, self.leader_epoch, self.magic, crc, *[0] * 8)
        return start[:21] + covered


def old_message(magic: int, value: bytes) -> bytes:
    """One message of the formats before record batches (magic 0 and 1)."""
    time = struct.pack(">q", DEFAULT_TIME_MS) if magic == 1 else b""
    body = struct.pack(">bb", magic, 0) + time + struct.pack(">ii", -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


@dataclass(frozen=True, slots=True)
class Header:
    """What a fetched batch says about itself."""

    base_offset: int
    size: int
    leader_epoch: int
    crc: int
    last_offset_delta: int
    producer_id: int
    crc_is_right: bool


def headers(records: bytes | None) -> list[Header]:
    """Headers of the whole batches; a batch that is cut at the end is left out."""
    found: list[Header] = []
    data = records or b""
    position = 0
    while position + HEADER.size <= len(data):
        fields = HEADER.unpack_from(data, position)
        size = fields[1] + 12
        if position + size > len(data):
            break
        right = crc32c(data[position + 21 : position + size]) == fields[4]
        found.append(Header(fields[0], size, fields[2], fields[4], fields[6], fields[9], right))
        position += size
    return found
