"""Protobuf's types as Arrow's, and how the value of a field is taken out of a message.

All integers that 64 bits with a sign can hold are one type, float and double too, so that changes
which the wire allows need no new column. Enums are their names. A field with presence (optional,
in a oneof, a message) is null where it is not set; any other has its default then.
"""

import decimal
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from chronik.pipeline.protobuf_schema import library

Convert = Callable[[Any], Any]
Read = Callable[[Any], Any]
"""The value of one field of a message."""
Column = tuple[pa.DataType, Read]
_INTEGERS = ("INT32", "INT64", "UINT32", "SINT32", "SINT64", "FIXED32", "SFIXED32", "SFIXED64")
_SCALARS: dict[str, pa.DataType] = {
    **dict.fromkeys(_INTEGERS, pa.int64()),
    "UINT64": pa.decimal128(20, 0),
    "FIXED64": pa.decimal128(20, 0),
    "FLOAT": pa.float64(),
    "DOUBLE": pa.float64(),
    "BOOL": pa.bool_(),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
}
_GOOGLE = "google.protobuf."
_WRAPPERS = {
    f"{_GOOGLE}{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
}
_FREE = {f"{_GOOGLE}{name}" for name in ("Struct", "Value", "ListValue")}
"""Messages of any content: kept as JSON text."""


def columns(message: Any) -> dict[str, Column]:
    """The fields of a message by their names in the schema."""
    return _Types().fields(message)


class _Types:
    """The types of one message; knows in which messages it is, because they may hold themselves."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        kinds = library("google.protobuf.descriptor").FieldDescriptor
        self._enum: int = kinds.TYPE_ENUM
        self._messages = (kinds.TYPE_MESSAGE, kinds.TYPE_GROUP)
        self._scalars = {getattr(kinds, f"TYPE_{name}"): kind for name, kind in _SCALARS.items()}

    def fields(self, message: Any) -> dict[str, Column]:
        self._open.add(message.full_name)
        found = {one.name: self._field(one) for one in message.fields}
        self._open.discard(message.full_name)
        return found

    def _field(self, field: Any) -> Column:
        name: str = field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._map(name, field.message_type)
        kind, convert = self._value(field)
        if field.is_repeated:
            return pa.list_(kind), lambda message: [convert(one) for one in getattr(message, name)]
        if field.has_presence:
            return (
                kind,
                lambda message: convert(getattr(message, name)) if message.HasField(name) else None,
            )
        return kind, lambda message: convert(getattr(message, name))

    def _map(self, name: str, entry: Any) -> Column:
        key, convert_key = self._value(entry.fields_by_name["key"])
        item, convert = self._value(entry.fields_by_name["value"])
        return pa.map_(key, item), lambda message: [
            (convert_key(one), convert(value)) for one, value in getattr(message, name).items()
        ]

    def _value(self, field: Any) -> tuple[pa.DataType, Convert]:
        """The type of one value, be it alone or in a list."""
        if field.type in self._messages:
            return self._message(field.message_type)
        if field.type == self._enum:
            names = {one.number: one.name for one in field.enum_type.values}
            return pa.string(), lambda number: names.get(number, str(number))
        kind = self._scalars[field.type]
        return kind, decimal.Decimal if pa.types.is_decimal(kind) else _same

    def _message(self, message: Any) -> tuple[pa.DataType, Convert]:
        name = message.full_name
        if name == f"{_GOOGLE}Timestamp":
            return pa.timestamp("us", tz="UTC"), _microseconds
        if name in _WRAPPERS:
            kind, convert = self._value(message.fields_by_name["value"])
            return kind, lambda wrapper: convert(wrapper.value)
        if name in _FREE or name in self._open or not message.fields:
            return pa.string(), _as_json  # a type that holds itself has no end
        members = self.fields(message)
        struct: Any = pa.struct([(member, kind) for member, (kind, _) in members.items()])
        return struct, lambda value: {member: read(value) for member, (_, read) in members.items()}


def _same(value: Any) -> Any:
    return value


def _microseconds(timestamp: Any) -> int:
    return int(timestamp.seconds) * 1_000_000 + int(timestamp.nanos) // 1_000


def _as_json(message: Any) -> str:
    pool = message.DESCRIPTOR.file.pool
    told = library("google.protobuf.json_format").MessageToDict(
        message, preserving_proto_field_name=True, descriptor_pool=pool
    )
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False)
