"""Batches for the replica tests: a header and enough bytes to patch."""

import struct

from chronik.wire.records import HEADER, BatchHeader, read_header

NOW_MS = 1_700_000_000_000


def batch(
    count: int = 1, producer: tuple[int, int, int] = (-1, -1, -1)
) -> tuple[memoryview, BatchHeader]:
    """A batch of `count` records by (producer id, epoch, base sequence)."""
    data = bytearray(HEADER.pack(77, 49, -1, 2, 0, 0, count - 1, NOW_MS, NOW_MS, *producer, count))
    return memoryview(data), read_header(data)


def placed(data: memoryview) -> tuple[int, int]:
    """Base offset and leader epoch in the batch's bytes."""
    (base_offset,) = struct.unpack_from(">q", data, 0)
    (epoch,) = struct.unpack_from(">i", data, 12)
    return base_offset, epoch
