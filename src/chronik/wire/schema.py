"""What a message looks like in which version: the base of the generated classes and their tables.

Types and version ranges are written as in Kafka's own message definitions: "[]int32", "0+", "2-7".
"""

import sys
from typing import Any, ClassVar, Final, NamedTuple

EMPTY: Final[Any] = []
"""Default of list arguments in the generated classes, which put a new list in its place."""

FIXED: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
"""Types of one size, with their struct codes."""

FieldRow = tuple[str, str, str, str, int | None]


class Struct:
    """A part of a message: plain attributes, the union of the fields of all versions."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[FieldRow, ...]] = ()
    """Name, type, versions, versions in which null is allowed, tag."""

    def __eq__(self, other: object) -> bool:
        """Field by field."""
        if type(other) is not type(self):
            return False
        return all(getattr(self, row[0]) == getattr(other, row[0]) for row in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """As a call that would build the same value."""
        values = (f"{row[0]}={getattr(self, row[0])!r}" for row in self.FIELDS)
        return f"{type(self).__name__}({', '.join(values)})"


class Message(Struct):
    """A whole body: request, response, or data of another protocol that uses the same forms."""

    __slots__ = ()
    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[str] = ""
    FLEXIBLE: ClassVar[str] = ""
    """Versions with compact lengths and tagged fields (KIP-482)."""


class Field(NamedTuple):
    """One field of a struct as one version has it."""

    name: str
    type: str
    """Without the brackets of an array."""
    is_array: bool
    nullable: bool
    nullable_elsewhere: bool
    """True where another version allows null."""
    tag: int | None


def contains(versions: str, version: int) -> bool:
    """Whether a range as Kafka writes it ("3+", "0-7", "5", "") holds the version."""
    if not versions:
        return False
    first, dash, last = versions.partition("-")
    if dash:
        return int(first) <= version <= int(last)
    if first.endswith("+"):
        return version >= int(first[:-1])
    return version == int(first)


def fields_of(struct: type[Struct], version: int) -> list[Field]:
    """The fields that the version has, in wire order; tagged ones last, by tag."""
    found = [
        Field(
            name,
            kind.removeprefix("[]"),
            kind.startswith("[]"),
            contains(nulls, version),
            bool(nulls),
            tag,
        )
        for name, kind, versions, nulls, tag in struct.FIELDS
        if contains(versions, version)
    ]
    return sorted(found, key=lambda field: -1 if field.tag is None else field.tag)


def nested(struct: type[Struct], name: str) -> type[Struct] | None:
    """The struct that a field of `struct` names, or None where the type is a primitive."""
    found = getattr(sys.modules[struct.__module__], name, None)
    if isinstance(found, type) and issubclass(found, Struct):
        return found
    return None
