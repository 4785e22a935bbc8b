"""Rows of a JSON table without Spark: for the few records that a small query reads from the log.

The rules are those of `json_table`, record by record in Python, so this is for thousands of records
and not for the ingest. Known to differ: Spark's parser also takes single quotes, and writes a
nested number in its own form.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

PLACE: Final = {"_partition": "partition", "_offset": "offset", "_timestamp": "timestamp"} | {
    "_key": "key"
}
"""Columns of every JSON table and what they are in the log."""
LONG_MAX: Final = 2**63 - 1
_LONG_DIGITS = 18
_OBJECT = re.compile(r"\s*\{.*\}\s*", re.DOTALL | re.ASCII)
_NOT_UTF8 = "the value is not UTF-8"
_NO_OBJECT = "the value is not a JSON object"
_NO_JSON = "the value is not JSON"
_OTHER_TYPE = "a field has another type than its column"


class BadRecord(ValueError):  # noqa: N818
    """The reason why a record is a dead letter."""


def rows(records: pa.Table, schema: pa.Schema) -> pa.Table:
    """The good records, as rows of a table with this schema."""
    fields = _fields(schema)
    good, places = [], []
    for at, value in enumerate(records.column("value").to_pylist()):
        try:
            good.append(parsed(value, fields))
            places.append(at)
        except BadRecord:
            continue
    kept = records.take(pa.array(places, pa.int64()))
    columns: list[Any] = [kept.column(PLACE[name]) for name in PLACE]
    columns += [pa.array([one[name] for one in good], kind) for name, kind in fields.items()]
    return pa.table(dict(zip([*PLACE, *fields], columns, strict=True))).select(schema.names)


def letters(records: pa.Table, schema: pa.Schema) -> pa.Table:
    """The bad records with their reasons; `schema` is that of the topic's table."""
    fields = _fields(schema)
    reasons = [_reason(value, fields) for value in records.column("value").to_pylist()]
    bad = [at for at, reason in enumerate(reasons) if reason is not None]
    kept = records.take(pa.array(bad, pa.int64()))
    told = pa.array([reasons[at] for at in bad], pa.string())
    names = ("partition", "offset", "timestamp", "key", "value")
    return kept.select(names).append_column("reason", told)


def _reason(value: bytes | None, fields: Mapping[str, pa.DataType]) -> str | None:
    try:
        parsed(value, fields)
    except BadRecord as error:
        return str(error)
    return None


def _fields(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {one.name: one.type for one in schema if one.name not in PLACE}


def parsed(value: bytes | None, fields: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """The fields of one value; a record without value has none."""
    found = {} if value is None else loaded(value)
    return {name: typed(found.get(name), kind) for name, kind in fields.items()}


def loaded(value: bytes) -> dict[str, Any]:
    """The JSON object, or the reason why it is none."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(_NOT_UTF8) from error
    if not _OBJECT.fullmatch(text):
        raise BadRecord(_NO_OBJECT)
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise BadRecord(_NO_JSON) from error
    return found


def typed(value: Any, kind: pa.DataType) -> Any:
    """A field's value as its column has it."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return (
            value
            if isinstance(value, str)
            else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        )
    if pa.types.is_boolean(kind):
        fits = isinstance(value, bool)
    elif pa.types.is_integer(kind):
        fits = type(value) is int and -LONG_MAX - 1 <= value <= LONG_MAX
    else:
        fits = type(value) in {int, float}
    if not fits:
        raise BadRecord(_OTHER_TYPE)
    return float(value) if pa.types.is_floating(kind) else value


def inferred(values: Iterable[bytes | None]) -> pa.Schema:
    """The columns of a table of these values; fields of several types are text."""
    kinds: dict[str, set[str]] = {}
    for value in values:
        try:
            found = {} if value is None else loaded(value)
        except BadRecord:
            continue
        for name, one in found.items():
            if one is not None:
                kinds.setdefault(name, set()).add(_kind(one))
    seen: dict[str, str] = {}
    for name in sorted(kinds):
        if name.lower() not in seen and name not in PLACE:
            seen[name.lower()] = name
    return pa.schema([pa.field(name, _type(kinds[name])) for name in seen.values()])


def _kind(value: Any) -> str:
    if type(value) is int and len(str(abs(value))) > _LONG_DIGITS:
        return "str"  # neither a bigint nor a double can hold it
    return type(value).__name__


def _type(kinds: set[str]) -> pa.DataType:
    if kinds == {"bool"}:
        return pa.bool_()
    if kinds == {"int"}:
        return pa.int64()
    return pa.float64() if kinds <= {"int", "float"} else pa.string()
