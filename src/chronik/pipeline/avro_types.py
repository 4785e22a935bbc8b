"""Avro's types as Arrow's, and the values of fastavro in the form that Arrow takes.

int and long are one type here, float and double too, so that Avro's own promotions need no new
column. A union of more than one type besides null is kept as JSON text.
"""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Convert = Callable[[Any], Any]
_PRIMITIVE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}


def text(value: Any) -> str | None:
    """A value whose type Arrow cannot say."""
    return None if value is None else json.dumps(value, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def same(value: Any) -> Any:
    return value


class AvroTypes:
    """The types of one schema; named types are known from their definition on."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: set[str] = set()

    def columns(self, schema: Any) -> dict[str, tuple[pa.DataType, Convert]]:
        """The fields of a record; a schema that is no record has one column, `value`."""
        if isinstance(schema, dict) and schema.get("type") == "record":
            self._name(schema)
            return {one["name"]: self.arrow(one["type"]) for one in schema["fields"]}
        return {"value": self.arrow(schema)}

    def arrow(self, schema: Any) -> tuple[pa.DataType, Convert]:
        """One type, and how its values are made fit."""
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            return self.arrow(others[0]) if len(others) == 1 else (pa.string(), text)
        if isinstance(schema, str):
            if schema in self._named:
                return self.arrow(self._named[schema])
            return (_PRIMITIVE[schema], same) if schema in _PRIMITIVE else (pa.string(), text)
        return self._complex(schema)

    def _complex(self, schema: dict[str, Any]) -> tuple[pa.DataType, Convert]:
        self._name(schema)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.arrow(kind)
        if kind == "array":
            item, convert = self.arrow(schema["items"])
            return pa.list_(item), _each(convert)
        if kind == "map":
            item, convert = self.arrow(schema["values"])
            return pa.map_(pa.string(), item), _pairs(convert)
        if kind == "record":
            return self._record(schema)
        return self._logical(schema)

    def _record(self, schema: dict[str, Any]) -> tuple[pa.DataType, Convert]:
        name = schema["name"]
        if name in self._open or not schema["fields"]:
            return pa.string(), text  # a type that holds itself has no end
        self._open.add(name)
        fields = {one["name"]: self.arrow(one["type"]) for one in schema["fields"]}
        self._open.discard(name)
        struct: Any = pa.struct([(field, kind) for field, (kind, _) in fields.items()])
        return struct, _members({field: convert for field, (_, convert) in fields.items()})

    def _logical(self, schema: dict[str, Any]) -> tuple[pa.DataType, Convert]:
        kind, logical = schema["type"], schema.get("logicalType", "")
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0)), same
        if logical == "uuid":
            return pa.string(), lambda value: None if value is None else str(value)
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical], same
        return self.arrow(kind)

    def _name(self, schema: dict[str, Any]) -> None:
        if "name" in schema:
            self._named[schema["name"]] = schema


def _each(convert: Convert) -> Convert:
    return lambda value: None if value is None else [convert(one) for one in value]


def _pairs(convert: Convert) -> Convert:
    return lambda value: None if value is None else [(k, convert(v)) for k, v in value.items()]


def _members(converts: dict[str, Convert]) -> Convert:
    def members(value: Any) -> Any:
        if value is None:
            return None
        return {name: convert(value[name]) for name, convert in converts.items()}

    return members
