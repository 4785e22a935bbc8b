"""The primitive fields of Kafka's schemas, in their plain and their flexible (KIP-482) form."""

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Malformed(ValueError):  # noqa: N818 - reads as a state of the bytes
    """Bytes that are not what their schema says."""


def unsigned_varint(value: int) -> bytes:
    """Seven bits per byte, low ones first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class FieldWriter:
    """Appends fields; `flexible` chooses compact lengths and tagged fields."""

    __slots__ = ("_flexible", "_out")

    def __init__(self, *, flexible: bool) -> None:
        self._out = bytearray()
        self._flexible = flexible

    def int16(self, value: int) -> None:
        """A version, mostly."""
        self._out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """A generation, an epoch, a timeout."""
        self._out += _INT32.pack(value)

    def int64(self, value: int) -> None:
        """An offset or a timestamp."""
        self._out += _INT64.pack(value)

    def string(self, text: str | None) -> None:
        """UTF-8 with its length; None is length -1 (compact: 0)."""
        raw = None if text is None else text.encode()
        self._length(-1 if raw is None else len(raw), _INT16)
        self._out += raw or b""

    def blob(self, data: bytes) -> None:
        """Bytes with their length."""
        self._length(len(data), _INT32)
        self._out += data

    def array(self, length: int) -> None:
        """The length of an array; the caller writes the elements."""
        self._length(length, _INT32)

    def tags(self, tagged: tuple[tuple[int, bytes], ...] = ()) -> None:
        """The tagged fields that end a flexible struct."""
        if not self._flexible:
            return
        self._out += unsigned_varint(len(tagged))
        for tag, data in tagged:
            self._out += unsigned_varint(tag) + unsigned_varint(len(data)) + data

    def bytes(self) -> bytes:
        """All that was written."""
        return bytes(self._out)

    def _length(self, length: int, plain: struct.Struct) -> None:
        self._out += unsigned_varint(length + 1) if self._flexible else plain.pack(length)


class FieldReader:
    """Takes fields from the front; raises Malformed where the bytes end too early."""

    __slots__ = ("_data", "_flexible", "_position")

    def __init__(self, data: bytes, position: int = 0, *, flexible: bool = False) -> None:
        self._data = data
        self._position = position
        self._flexible = flexible

    def int16(self) -> int:
        """A version, mostly."""
        return self._fixed(_INT16)

    def int32(self) -> int:
        """A generation, an epoch, a timeout."""
        return self._fixed(_INT32)

    def int64(self) -> int:
        """An offset or a timestamp."""
        return self._fixed(_INT64)

    def string(self) -> str:
        """A string that may not be null."""
        text = self.nullable_string()
        if text is None:
            raise Malformed("null where a string must be")
        return text

    def nullable_string(self) -> str | None:
        """A string or null."""
        length = self._length(_INT16)
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise Malformed("a string that is not UTF-8") from error

    def blob(self) -> bytes:
        """Bytes; null reads as empty."""
        return self._take(max(self._length(_INT32), 0))

    def array(self) -> int:
        """The length of an array; bounded by the bytes left, since no element takes none."""
        length = self._length(_INT32)
        if length > len(self._data) - self._position:
            raise Malformed(f"an array of {length} in fewer bytes")
        return max(length, 0)

    def tags(self) -> dict[int, bytes]:
        """The tagged fields of a flexible struct; the caller ignores those it does not know."""
        if not self._flexible:
            return {}
        tagged = {}
        for _ in range(self._varint()):
            tag = self._varint()
            tagged[tag] = self._take(self._varint())
        return tagged

    def _length(self, plain: struct.Struct) -> int:
        return self._varint() - 1 if self._flexible else self._fixed(plain)

    def _fixed(self, field: struct.Struct) -> int:
        value: int
        (value,) = field.unpack(self._take(field.size))
        return value

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise Malformed(f"{length} bytes at {self._position} of {len(self._data)}")
        data = self._data[self._position : end]
        self._position = end
        return data

    def _varint(self) -> int:
        value = shift = 0
        while shift < 35:
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise Malformed("a varint longer than five bytes")
