"""Packed rows to Arrow record batches, without a look at any single value. Loads pyarrow.

The bytes of many rows are one array of numbers, of which every so-many-th belongs to a column: one
`take` cuts out all columns of a width. What is null is looked up by the shapes of the rows, again
for all columns at once. All of it is Arrow's own work, for which the event loop keeps the GIL.
"""

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from chronik.trace.packed import INTS, LONGS, NUMBERS, SHAPES, SHORTS, TEXTS, WIDTH, Packed
from chronik.trace.schema import COLUMNS, arrow_schema

ROWS_MAX: Final = 8_192
"""Of one batch: the rows of a megabyte. More would fall out of the processor's cache."""
_TYPES: Final = {name: pa.type_for_alias(type_name) for name, type_name in COLUMNS}
_TEXT: Final = pa.string()
Arrays = dict[str, Any]


class _Width(NamedTuple):
    """The columns of one width: the type, where in a row the first is, what they are called."""

    type: Any
    size: int
    first: int
    names: tuple[str, ...]


_SHAPE: Final = "shape"
_INTS_AT = 8 * len(LONGS)
_SHORTS_AT = _INTS_AT + 4 * (len(INTS) + len(TEXTS))
_LONGS: Final = _Width(pa.int64(), 8, 0, LONGS)
_INTS: Final = _Width(pa.int32(), 4, _INTS_AT // 4, (*INTS, *TEXTS))
_SHORTS: Final = _Width(pa.int16(), 2, _SHORTS_AT // 2, (*SHORTS, _SHAPE))


@cache
def _every(step: int) -> Any:
    """0, `step`, twice `step` and so on: where the values of a column are."""
    return pa.array(range(0, ROWS_MAX * step, step), pa.int32())


class Columns:
    """Makes the batches of one tracer; keeps the texts that it has converted."""

    def __init__(self) -> None:
        self._known: tuple[int, int] = (0, 0)
        self._texts: Any = pa.array([None], _TEXT)

    def batches(self, packed: Packed) -> list[pa.RecordBatch]:
        """All rows, in batches of at most `ROWS_MAX` with the one schema."""
        self._convert_texts(packed)
        return [self._batch(packed, start) for start in range(0, len(packed), ROWS_MAX)]

    def _batch(self, packed: Packed, start: int) -> pa.RecordBatch:
        count = min(len(packed) - start, ROWS_MAX)
        rows = pa.py_buffer(packed.rows).slice(start * WIDTH, count * WIDTH)
        found = _cut(rows, count, _SHORTS, _SHORTS.names)
        nulls = _nulls(tuple(sorted(found[_SHAPE].unique().to_pylist())))
        for width in (_LONGS, _INTS):
            wanted = [name for name in width.names if nulls.column_of.get(name) != NONE]
            found.update(_cut(rows, count, width, wanted))
        valid = nulls.bits.take(found[_SHAPE])
        ready: Arrays = {
            "time_ns": pc.add(found["mono_ns"], packed.wall_ahead_ns),
            "mono_ns": found["mono_ns"],
            "node": pa.repeat(pa.scalar(packed.node, pa.int32()), count),
            "kind": valid.column(0),
        }
        for name in TEXTS:
            ready[name] = self._text(found[name], packed.texts_first)
        for name, column in nulls.column_of.items():
            if column == NONE:
                ready[name] = pa.nulls(count, _TYPES[name])
            else:
                ready[name] = _with_nulls(found[name], valid, column)
        return pa.RecordBatch.from_arrays(
            [ready[name] for name, _ in COLUMNS], schema=arrow_schema()
        )

    def _convert_texts(self, packed: Packed) -> None:
        """Texts are only ever added at the end and forgotten at the front."""
        known = packed.texts_first, len(packed.texts)
        if known != self._known:
            self._texts = pa.array([None, *packed.texts], _TEXT)
            self._known = known

    def _text(self, numbers: Any, first: int) -> Any:
        """Null, or forgotten, is what lies before the first."""
        if first > 1:
            numbers = pc.max_element_wise(pc.subtract(numbers, first - 1), 0)
        return self._texts.take(numbers)


def _cut(rows: Any, count: int, width: _Width, wanted: Sequence[str]) -> Arrays:
    """These columns of so many rows, by name."""
    step = WIDTH // width.size
    values = pa.Array.from_buffers(width.type, count * step, [None, rows])
    length = (count - 1) * step + 1
    views = [values.slice(width.first + width.names.index(name), length) for name in wanted]
    cut = pa.RecordBatch.from_arrays(views, names=list(wanted)).take(_every(step)[:count])
    return dict(zip(wanted, cut.columns, strict=True))


ALL, NONE = -1, -2
"""In the place of a column: every shape has the number, or none."""


class _Nulls(NamedTuple):
    """What some shapes have: `bits` has the kind, then who has a number, by shape."""

    bits: pa.RecordBatch
    column_of: dict[str, int]
    """Of the number's bits, or that all or none have it."""


@lru_cache(maxsize=64)
def _nulls(numbers: Sequence[int]) -> _Nulls:
    """For batches of rows with these shapes, of which there are few."""
    kinds = pa.array([one.kind for one in SHAPES[: numbers[-1] + 1]], pa.int8())
    columns: dict[tuple[bool, ...], int] = {}
    arrays: list[Any] = [kinds]
    column_of = {}
    for name in NUMBERS:
        given = tuple(name in SHAPES[number].given for number in numbers)
        if len(set(given)) == 1:
            column_of[name] = ALL if given[0] else NONE
            continue
        if given not in columns:
            columns[given] = len(arrays)
            arrays.append(_by_shape(numbers, given))
        column_of[name] = columns[given]
    names = [str(place) for place in range(len(arrays))]
    return _Nulls(pa.RecordBatch.from_arrays(arrays, names=names), column_of)


def _by_shape(numbers: Sequence[int], given: Iterable[bool]) -> Any:
    known = dict(zip(numbers, given, strict=True))
    return pa.array([known.get(number, False) for number in range(numbers[-1] + 1)])


def _with_nulls(values: Any, valid: pa.RecordBatch, column: int) -> Any:
    if column == ALL:
        return values
    bits = valid.column(column).buffers()[1]
    return pa.Array.from_buffers(values.type, len(values), [bits, values.buffers()[1]])
