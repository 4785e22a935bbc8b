"""Events as bytes: one row of fixed width each, packed by one call where the event happens.

A row has a place for every number of `TraceEvent`, the wide ones first, as the machine has them in
memory: whoever writes the files cuts the columns out of many rows at once. Texts are numbers of
`names.py`. What is the same for all rows of one kind is not in them but in their `Shape`: the kind,
and which numbers are null. The node and the wall clock are the same for all rows of a tracer, or
as good as: they are added when the rows are read.
"""

import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import is_not, itemgetter
from typing import Any, Final

from chronik.trace.events import Row, TraceEvent
from chronik.trace.schema import COLUMNS, ArrowType

_NOT_PACKED = frozenset({"time_ns", "node", "kind"})


def _of_type(type_name: ArrowType) -> tuple[str, ...]:
    return tuple(name for name, its in COLUMNS if its == type_name and name not in _NOT_PACKED)


LONGS: Final = _of_type("int64")
INTS: Final = _of_type("int32")
TEXTS: Final = _of_type("string")
SHORTS: Final = _of_type("int16")
NUMBERS: Final = (*LONGS[1:], *INTS, *SHORTS)
"""The columns that may be null; `mono_ns`, the first of all, never is. Text number 0 is null."""
FIELDS: Final = (*LONGS, *INTS, *TEXTS, *SHORTS)
"""The order within a row, which ends with the number of its shape."""

# Where it has eight bytes, `l` is twice as quick as `q` for what is not a small number.
_LONG = "l" if struct.calcsize("l") == 8 else "q"
_SIZES = {_LONG: 8, "i": 4, "h": 2}
_CODES = {
    **dict.fromkeys(LONGS, _LONG),
    **dict.fromkeys((*INTS, *TEXTS), "i"),
    **dict.fromkeys(SHORTS, "h"),
}
_WHOLE = struct.Struct("".join(_CODES[name] for name in FIELDS) + "h")
WIDTH: Final = _WHOLE.size
assert WIDTH % 8 == 0, "rows that follow each other keep their numbers in place"
SHAPES_MAX: Final = 32_000
"""More do not fit their number. A node has some dozens."""

UNFIT: Final = (struct.error, ValueError, TypeError, OverflowError)
"""What packing raises for a value that its column cannot hold: the event is lost and counted."""

Pack = Callable[..., bytes]
Numbers = Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows with the same kind and the same nulls have in common."""

    number: int
    kind: int
    given: frozenset[str]
    """The numbers that are not null."""
    format: str
    pack: Pack
    """`mono_ns`, then the shape's columns in the order of `FIELDS`, then its number, to bytes."""
    read: Callable[[Sequence[int | str | None]], Row]
    """From what `unpack` has of a row to a row in the order of `TraceEvent`."""


SHAPES: Final[list[Shape]] = []
_by_nulls: dict[tuple[int, tuple[bool, ...]], Shape] = {}
_adding = threading.Lock()


def shape(kind: int, *columns: str) -> Shape:
    """Of an event that is packed where it happens: its columns, in the order of `FIELDS`."""
    assert list(columns) == [name for name in FIELDS[1:] if name in columns], "the order of a row"
    known = _shape(int(kind), tuple(name in columns for name in NUMBERS))
    its = _format(columns)
    return replace(known, format=its, pack=struct.Struct(its).pack)


def pack_two(first: Shape, second: Shape) -> Pack:
    """Two rows at once, for events of one place: the values of one, then those of the other."""
    return struct.Struct(first.format + second.format).pack


def _format(columns: Iterable[str]) -> str:
    """Columns that are not given cost nothing: their bytes are skipped, and so are zero."""
    given = {FIELDS[0], *columns}
    codes = [_CODES[name] if name in given else f"{_SIZES[_CODES[name]]}x" for name in FIELDS]
    return "".join(codes) + "h"


def _shape(kind: int, given: tuple[bool, ...]) -> Shape:
    found = _by_nulls.get((kind, given))
    return found if found is not None else _add_shape(kind, given)


def _add_shape(kind: int, given: tuple[bool, ...]) -> Shape:
    with _adding:
        number = len(SHAPES)
        if number >= SHAPES_MAX:
            raise ValueError("too many combinations of columns")
        names = frozenset(name for name, is_given in zip(NUMBERS, given, strict=True) if is_given)
        added = Shape(number, kind, names, _WHOLE.format, _WHOLE.pack, _reader(names))
        SHAPES.append(added)
        _by_nulls[kind, given] = added
        return added


_HEAD = ("time_ns", "node", "kind")


def _reader(given: frozenset[str]) -> Callable[[Sequence[int | str | None]], Row]:
    """Picks the columns of `TraceEvent` from (*_HEAD, None, *FIELDS)."""
    places = {name: place for place, name in enumerate((*_HEAD, "", *FIELDS))}
    absent = places[""]
    kept = {*_HEAD, FIELDS[0], *TEXTS, *given}
    return itemgetter(*(places[name] if name in kept else absent for name in TraceEvent._fields))


def pack_any(kind: int, mono_ns: int, numbers: Numbers, texts: Sequence[int]) -> bytes:
    """Any event; `numbers` are those of `NUMBERS`."""
    found = _shape(int(kind), tuple(map(is_not, numbers, repeat(None))))
    filled = [number if number is not None else 0 for number in numbers]
    wide, short = filled[: -len(SHORTS)], filled[-len(SHORTS) :]
    return _WHOLE.pack(mono_ns, *wide, *texts, *short, found.number)


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of one node, oldest first, and what is needed to read them."""

    rows: bytes
    node: int
    wall_ahead_ns: int
    """To be added to the monotonic clock."""
    texts_first: int
    texts: Sequence[str]
    """The text of number `texts_first` and those after it."""

    def __len__(self) -> int:
        return len(self.rows) // WIDTH


def unpack(packed: Packed) -> list[TraceEvent]:
    """The events as Python values: for readers of the memory ring, and for tests."""
    first, texts = packed.texts_first, packed.texts

    def text(number: int) -> str | None:
        return texts[number - first] if number >= first else None

    at = FIELDS.index(TEXTS[0])
    after = at + len(TEXTS)
    found = []
    for values in _WHOLE.iter_unpack(packed.rows):
        its: Shape = SHAPES[values[-1]]
        head: tuple[Any, ...] = (values[0] + packed.wall_ahead_ns, packed.node, its.kind, None)
        whole = (*head, *values[:at], *map(text, values[at:after]), *values[after:])
        found.append(TraceEvent._make(its.read(whole)))
    return found
