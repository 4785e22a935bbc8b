"""The smallest pieces of Kafka's wire form, and what is raised when bytes are wrong.

Lengths come from the peer, so they are compared with the bytes that are left before anything is
built from them; no declared length ever allocates.
"""

import struct
from collections.abc import Sequence
from typing import Final

Buffer = bytes | bytearray | memoryview

ZERO_UUID: Final = bytes(16)
"""Kafka's "no id": sixteen zero bytes."""

UVARINT: Final = tuple(bytes((n,)) for n in range(128))
"""The one-byte forms, by value."""

_UVARINT_BYTES_MAX = 5
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class WireError(ValueError):
    """The bytes are not a message of the expected kind, or the message does not fit the version."""


def uvarint(value: int) -> bytes:
    """An unsigned varint, seven bits per byte, low bits first."""
    if value < 128:
        return UVARINT[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """The varint at `position` and the position after it; IndexError where the data end."""
    byte = data[position]
    if byte < 128:
        return byte, position + 1
    return rest_of_uvarint(data, position + 1, byte)


def rest_of_uvarint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Goes on after a first byte that said there is more."""
    value = first & 127
    for count in range(1, _UVARINT_BYTES_MAX):
        byte = data[position]
        position += 1
        value |= (byte & 127) << (7 * count)
        if byte < 128:
            return value, position
    raise WireError(f"varint of more than {_UVARINT_BYTES_MAX} bytes at byte {position}")


def skip_tags(data: Buffer, position: int) -> int:
    """The position after a section of tagged fields, none of which is of interest."""
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > len(data):
            raise short("tagged field", size, position - size, len(data))
    return position


def short(what: str, size: int, position: int, end: int) -> WireError:
    """The error for a declared size that the data cannot hold."""
    return WireError(f"{what}: {size} declared at byte {position}, {end - position} bytes left")


def null(what: str, position: int) -> WireError:
    """The error for a null where the version has none."""
    return WireError(f"{what}: null at byte {position} where no null is allowed")


def read_string(data: Buffer, position: int, flexible: bool) -> tuple[str | None, int]:
    """A nullable string and the position after it."""
    if flexible:
        length, position = read_uvarint(data, position)
        length -= 1
    else:
        (length,) = _INT16.unpack_from(data, position)
        position += 2
    if length < 0:
        return None, position
    stop = position + length
    if stop > len(data):
        raise short("string", length, position, len(data))
    return str(data[position:stop], "utf-8"), stop


def read_length(
    data: Buffer, position: int, flexible: bool, bytes_least: int = 1
) -> tuple[int, int]:
    """Length of an array whose elements take at least so many bytes; null counts as empty."""
    if flexible:
        length, position = read_uvarint(data, position)
        length -= 1
    else:
        (length,) = _INT32.unpack_from(data, position)
        position += 4
    if length * bytes_least > len(data) - position:
        raise short("array elements", length, position, len(data))
    return max(length, 0), position


def string(value: str | None, flexible: bool) -> bytes:
    """A nullable string, with its length before it."""
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    text = value.encode()
    return (uvarint(len(text) + 1) if flexible else _INT16.pack(len(text))) + text


def array_length(length: int, flexible: bool) -> bytes:
    """The length before the elements of an array that is not null."""
    return uvarint(length + 1) if flexible else _INT32.pack(length)


def tagged(fields: Sequence[tuple[int, bytes]]) -> bytes:
    """A section of tagged fields, given by rising tag."""
    pieces = [uvarint(len(fields))]
    for tag, body in fields:
        pieces += (uvarint(tag), uvarint(len(body)), body)
    return b"".join(pieces)
