"""JSON values to typed columns, a batch at a time: Arrow's parser, and Python's where it gives up.

Arrow reads the values of a batch as lines of one text. It refuses the text as a whole where one
line is not right; then smaller pieces are tried, and only the records of a piece that is refused
again are looked at one by one. Both ways give the same rows.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.json

from chronik.pipeline.arrow_types import conflict, united

read_json: Any = pyarrow.json.read_json

pc: Any = pyarrow.compute
Array = Any
"""pyarrow's; its stubs have it generic, itself it is not."""
Fields = dict[str, pa.DataType]
BOOLEAN, BIGINT, DOUBLE, STRING = pa.bool_(), pa.int64(), pa.float64(), pa.string()
NOT_UTF8 = "the value is not UTF-8"
NOT_OBJECT = "the value is not a JSON object"
NOT_JSON = "the value is not JSON"
OTHER_TYPE = "a field has another type than its column"
PIECE_ROWS = 1_024
_BIGINT_MAX = 2**63
_SPACE = b" \t\n\r"


class _NotFast(Exception):  # noqa: N818
    """Arrow's parser cannot, or its answer is not to be trusted."""


@dataclass(frozen=True)
class Judged:
    """One row per value: its fields, or the reason why it has none."""

    columns: dict[str, Array]
    reasons: Array
    """Null where the record is good. A null value is a good record without fields."""


class JsonColumns:
    """The types of a task's columns. Those of the table are fixed, new ones widen as they must."""

    def __init__(self, fixed: Mapping[str, pa.DataType], reserved: frozenset[str]) -> None:
        self.fixed = dict(fixed)
        self.new: Fields = {}
        self.widened = False
        """True once a new column has another type than rows that were already handed out."""
        self._taken = {name.lower() for name in (*self.fixed, *reserved)}
        self._ignored: set[str] = set()

    @property
    def fields(self) -> Fields:
        """All columns, in the table's order."""
        return self.fixed | self.new

    def judge(self, values: Array) -> Judged:
        """The rows of one batch."""
        try:
            pieces = [self._fast(values)]
        except _NotFast:
            cut = range(0, len(values), PIECE_ROWS)
            pieces = [self._piece(values.slice(first, PIECE_ROWS)) for first in cut]
        columns = {name: _joined(pieces, name, kind) for name, kind in self.fields.items()}
        return Judged(columns, pa.concat_arrays([one.reasons for one in pieces]))

    def _piece(self, values: Array) -> Judged:
        try:
            return self._fast(values)
        except _NotFast:
            return self._slow(values)

    # -- new fields

    def _add(self, name: str, kind: pa.DataType) -> None:
        """A field of the values; it becomes a column, or its column gets wider."""
        if name in self.fixed or name in self._ignored:
            return
        if name not in self.new:
            if name.lower() in self._taken:  # Names that differ in case only are one column.
                self._ignored.add(name)
                return
            self._taken.add(name.lower())
            self.new[name] = kind
        elif self.new[name] != kind:
            wide = wider(self.new[name], kind)
            self.widened |= wide != self.new[name]
            self.new[name] = wide

    # -- Arrow's parser

    def _fast(self, values: Array) -> Judged:
        good = pa.nulls(len(values), STRING)
        if values.null_count == len(values):
            return Judged({}, good)
        columns = self._parsed(values.drop_null())
        if values.null_count:
            present = np.asarray(values.is_valid())
            places = pa.array(np.cumsum(present) - 1, mask=~present)
            columns = {name: column.take(places) for name, column in columns.items()}
        return Judged(columns, good)

    def _parsed(self, values: Array) -> dict[str, Array]:
        text = _lines(values)
        table = _read(text, self.fields, len(values))
        fresh = [one for one in table.schema if one.name not in self.fields]
        if fresh and self._learn(table, fresh):
            table = _read(text, self.fields, len(values))
        return {name: table.column(name).combine_chunks() for name in self.fields}

    def _learn(self, table: pa.Table, fresh: list[Any]) -> bool:
        """Adds the fields that Arrow found; True where they must be read again as another type."""
        again = False
        for one in fresh:
            if pa.types.is_null(one.type):
                continue
            kind = STRING if pa.types.is_timestamp(one.type) else one.type
            if kind not in {BOOLEAN, BIGINT, DOUBLE, STRING}:
                raise _NotFast("objects and arrays are kept as text")
            if kind == DOUBLE and _maybe_whole(table.column(one.name)):
                raise _NotFast("a whole number that is none of 64 bits is kept as text")
            self._add(one.name, kind)
            again |= kind != one.type and one.name in self.new
        return again

    # -- one by one

    def _slow(self, values: Array) -> Judged:
        read = [_loaded(value) for value in values.to_pylist()]
        for one in read:
            if isinstance(one, dict):
                for name, value in one.items():
                    if value is not None:
                        self._add(name, kind_of(value))
        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for one in read:
            row, reason = self._row(one)
            rows.append(row)
            reasons.append(reason)
        columns = {
            name: pa.array([row[name] if row else None for row in rows], kind)
            for name, kind in self.fields.items()
        }
        return Judged(columns, pa.array(reasons, STRING))

    def _row(self, read: Any) -> tuple[dict[str, Any] | None, str | None]:
        if isinstance(read, str):
            return None, read
        if read is None:
            return None, None
        try:
            return {
                name: _as_type(read.get(name), kind) for name, kind in self.fields.items()
            }, None
        except (TypeError, OverflowError):
            return None, OTHER_TYPE


def _joined(pieces: list[Judged], name: str, kind: pa.DataType) -> Array:
    """One column of all pieces: null where a piece does not have it.

    A piece may have it in a narrower type; then `widened` is set and the task is done again.
    """
    found: list[Any] = []
    for one in pieces:
        column = one.columns.get(name)
        fits = column is not None and column.type == kind
        found.append(column if fits else pa.array([None] * len(one.reasons), kind))
    return pa.concat_arrays(found)


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that holds both."""
    if {one, other} == {BIGINT, DOUBLE}:
        return DOUBLE
    wide: pa.DataType = STRING if conflict(one, other) else united(one, other)
    return wide


def merged(fields: Mapping[str, pa.DataType], others: Mapping[str, pa.DataType]) -> Fields:
    """The new fields of two tasks; names that differ in case only are one, the first."""
    found = dict(fields)
    names = {name.lower(): name for name in found}
    for name, kind in others.items():
        known = names.setdefault(name.lower(), name)
        if known == name:
            found[name] = wider(found.get(name, kind), kind)
    return found


# -- Arrow's side


def _lines(values: Array) -> Any:
    """The values as lines; only where each is one line from brace to brace.

    That keeps lines and rows together: a line that begins with a brace cannot go on with what the
    line before it left open, so a text of as many rows as lines has one row per line.
    """
    lines = pc.binary_join_element_wise(values, b"", b"\n")
    _, offset_buffer, data = lines.buffers()
    assert lines.offset == 0
    offsets = np.frombuffer(offset_buffer, np.int32, len(lines) + 1)
    text = np.frombuffer(data, np.uint8, offsets[-1])
    if np.diff(offsets).min() < len("{}\n"):
        raise _NotFast
    braces = (text[offsets[:-1]] == ord("{")).all() and (text[offsets[1:] - 2] == ord("}")).all()
    if not braces or np.count_nonzero(text == ord("\n")) != len(lines):
        raise _NotFast
    try:
        values.cast(pa.string())  # Arrow's parser does not look at the encoding.
    except pa.ArrowInvalid as error:
        raise _NotFast from error
    return data.slice(0, int(offsets[-1]))


def _read(text: pa.Buffer, fields: Fields, rows: int) -> pa.Table:
    try:
        table: pa.Table = read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(fields.items()))
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        raise _NotFast from error
    if table.num_rows != rows or not _finite(table):
        raise _NotFast
    return table


def _finite(table: pa.Table) -> bool:
    """NaN and Infinity are not JSON; Arrow takes them."""
    doubles = [one for one in table.columns if one.type == DOUBLE]
    return all(pc.all(pc.is_finite(one), min_count=0).as_py() for one in doubles)


def _maybe_whole(column: Array) -> bool:
    most = pc.max(pc.abs(column)).as_py()
    return most is not None and most >= _BIGINT_MAX


# -- Python's side


def _refuse(text: str) -> Any:
    raise ValueError(text)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _loaded(value: bytes | None) -> dict[str, Any] | str | None:
    """The object, or what is wrong; None for no value."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return NOT_UTF8
    stripped = text.strip(_SPACE.decode())
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return NOT_OBJECT
    try:
        found: dict[str, Any] = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return NOT_JSON
    return found


def kind_of(value: Any) -> pa.DataType:
    """The narrowest column for a value."""
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return BIGINT if -_BIGINT_MAX <= value < _BIGINT_MAX else STRING
    return DOUBLE if isinstance(value, float) else STRING


def _as_type(value: Any, kind: pa.DataType) -> Any:
    """The value in a column of that type; TypeError where it does not fit."""
    if value is None:
        return None
    if kind == STRING:
        return _as_text(value)
    if kind == DOUBLE and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind_of(value) != kind:
        raise TypeError
    return value


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half of a surrogate pair can be escaped in JSON, and is no character.
    return text.encode(errors="replace").decode()
