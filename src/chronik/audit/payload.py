"""Values that name themselves: run, sender, sequence and checksum in the first 32 bytes.

    0       4        12        16        20         28         32
    | magic | run    | sender  | size    | sequence | checksum | filler ...

The checksum (CRC-32C) covers the key and all bytes of the value except its own four, so a record
that was cut, mixed with another or moved to another key does not pass. The filler is fixed.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

MAGIC = 0x6368_726B
HEAD = struct.Struct(">IQIIQ")
CHECKSUM = struct.Struct(">I")
SEQUENCE_AT = struct.Struct(">20xQ")
"""Finds the sequence alone, in a value that is known to be ours."""
HEADER_SIZE = HEAD.size + CHECKSUM.size
_FILLER = bytes(range(256))


class Payload(NamedTuple):
    """What a value says of itself; `intact` tells whether its checksum agrees."""

    run: int
    sender: int
    sequence: int
    checksum: int
    intact: bool


class PayloadWriter:
    """Makes the values of one sender; the filler's checksum is computed once."""

    def __init__(self, run: int, sender: int, size: int) -> None:
        if size < HEADER_SIZE:
            raise ValueError(f"a value needs at least {HEADER_SIZE} bytes to name itself")
        self._run, self._sender, self._size = run, sender, size
        self._filler = (_FILLER * (size // 256 + 1))[: size - HEADER_SIZE]

    def write(self, sequence: int, key: bytes = b"") -> tuple[bytes, int]:
        """The value and its checksum."""
        head = HEAD.pack(MAGIC, self._run, self._sender, self._size, sequence)
        checksum = crc32c(self._filler, crc32c(head, crc32c(key)))
        return head + CHECKSUM.pack(checksum) + self._filler, checksum


def read_payload(value: bytes | None, key: bytes | None) -> Payload | None:
    """What a value says of itself; None if it is not one of ours at all."""
    if value is None or len(value) < HEADER_SIZE:
        return None
    magic, run, sender, size, sequence = HEAD.unpack_from(value)
    if magic != MAGIC:
        return None
    (claimed,) = CHECKSUM.unpack_from(value, HEAD.size)
    head, filler = value[: HEAD.size], value[HEADER_SIZE:]
    actual = crc32c(filler, crc32c(head, crc32c(key or b"")))
    return Payload(run, sender, sequence, actual, actual == claimed and size == len(value))
