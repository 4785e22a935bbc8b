"""Values that name themselves: run, sender, sequence and checksum in the first 32 bytes.

    0       4        12        16        20         28         32
    | magic | run    | sender  | size    | sequence | checksum | filler ...

The checksum (CRC-32C) covers the key and all bytes of the value except its own four, so a record
that was cut, mixed with another or moved to another key does not pass. The filler is fixed.

The same as JSON, for a topic that is to become a table: the sequence stands at a fixed place, the
checksum comes last and covers the key and all that stands before it.
"""

import re
import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from chronik.model.crc import crc32c

MAGIC = 0x6368_726B
HEAD = struct.Struct(">IQIIQ")
CHECKSUM = struct.Struct(">I")
HEADER_SIZE = HEAD.size + CHECKSUM.size
JOINED_SIZE_MAX = 1_024
"""Larger values are not copied to read eight bytes of each."""
UNPACKED_AT_ONCE = 64
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


class Writer(Protocol):
    """Makes values that name themselves."""

    def write(self, sequence: int, key: bytes = b"") -> tuple[bytes, int]:
        """The value and its checksum."""


class JsonWriter:
    """Orders of a shop: small, typed, and each names itself."""

    def __init__(self, run: int, sender: int) -> None:
        self._run, self._sender = run, sender

    def write(self, sequence: int, key: bytes = b"") -> tuple[bytes, int]:
        """The value and its checksum."""
        body = (
            b'{"sequence":"%016d","run":"%016x","sender":%d,"customer":"c%03d","country":"%s",'
            % (
                sequence,
                self._run,
                self._sender,
                sequence * 7919 % 997,
                _COUNTRIES[sequence % len(_COUNTRIES)],
            )
        )
        body += b'"amount":%d.%02d' % (sequence % 500, sequence % 97)
        checksum = crc32c(body, crc32c(key))
        return body + b',"checksum":"%08x"}' % checksum, checksum


_COUNTRIES = (b"DE", b"FR", b"IT", b"JP", b"US")
_JSON = re.compile(
    rb'(\{"sequence":"(\d{16})","run":"([0-9a-f]{16})","sender":(\d+),.*),"checksum":"([0-9a-f]{8})"\}',
    re.DOTALL,
)


def sequences_of(values: Sequence[bytes]) -> "array[int]":
    """The sequences of values that are known to be ours, all of one kind."""
    if values[0][:1] == b"{":
        return array("q", [int(value[13:29]) for value in values])
    size = len(values[0])
    if size <= JOINED_SIZE_MAX:
        return _unpacked(values, size)
    found = array("q", b"".join([value[HEAD.size - 8 : HEAD.size] for value in values]))
    found.byteswap()
    return found


def _unpacked(values: Sequence[bytes], size: int) -> "array[int]":
    """Many at once in C, zeros behind the last: a step of Python for each takes twice as long."""
    sequences = _sequences(size)
    found: list[int] = []
    for few in sequences.iter_unpack(
        b"".join([*values, bytes(-len(values) * size % sequences.size)])
    ):
        found += few
    return array("q", found[: len(values)])


@lru_cache
def _sequences(size: int) -> struct.Struct:
    """Reads the sequences and nothing else of values of that size."""
    return struct.Struct(">" + f"{HEAD.size - 8}xQ{size - HEAD.size}x" * UNPACKED_AT_ONCE)


def _read_json(value: bytes, key: bytes | None) -> Payload | None:
    found = _JSON.fullmatch(value)
    if found is None:
        return None
    body, sequence, run, sender, claimed = found.groups()
    actual = crc32c(body, crc32c(key or b""))
    return Payload(int(run, 16), int(sender), int(sequence), actual, actual == int(claimed, 16))


def read_payload(value: bytes | None, key: bytes | None) -> Payload | None:
    """What a value says of itself; None if it is not one of ours at all."""
    if value is None or len(value) < HEADER_SIZE:
        return None
    if value[:1] == b"{":
        return _read_json(value, key)
    magic, run, sender, size, sequence = HEAD.unpack_from(value)
    if magic != MAGIC:
        return None
    (claimed,) = CHECKSUM.unpack_from(value, HEAD.size)
    head, filler = value[: HEAD.size], value[HEADER_SIZE:]
    actual = crc32c(filler, crc32c(head, crc32c(key or b"")))
    return Payload(run, sender, sequence, actual, actual == claimed and size == len(value))
