"""One row per record whose value is Protobuf with a registry's header: a column per field.

The header is a zero byte, the schema's number, and which message of the schema the value is: a
count and that many indexes, as zigzag varints; the count 0 stands for the first message. What a
schema does not name is not dropped: a value with unknown fields is a bad record.
"""

from dataclasses import dataclass, field
from typing import Any

from chronik.pipeline.json_columns import Fields
from chronik.pipeline.json_rows import PLACE
from chronik.pipeline.protobuf_schema import (
    BadSchema,
    Compiled,
    compiled,
    imports,
    library,
    require,
)
from chronik.pipeline.protobuf_types import Read, columns
from chronik.pipeline.registry import Registry
from chronik.pipeline.registry_shape import RegistryShape

NOT_PROTOBUF = "the registry's schema is not Protobuf"
NOT_COMPILED = "the registry's schema cannot be compiled"
NO_INDEX = "the value does not say which message of its schema it is"
NO_MESSAGE = "the schema has no message at the place that the value names"
NOT_OF_SCHEMA = "the value is not Protobuf of its schema"
UNKNOWN_FIELDS = "the value has fields that its schema does not have"
NESTING_MAX = 100


@dataclass(frozen=True)
class Message:
    """One message of a schema, ready to read values."""

    parse: Any
    reads: dict[str, Read]


@dataclass(frozen=True)
class Schema:
    """A writer's schema; its messages are made ready when a value names them."""

    compiled: Compiled
    messages: dict[tuple[int, ...], Message | str] = field(default_factory=dict)


class ProtobufShape(RegistryShape[Schema]):
    """Rows of one task."""

    def __init__(self, fixed: Fields, registry: Registry) -> None:
        super().__init__(fixed, registry)
        self._decode_error = library("google.protobuf.message").DecodeError
        require()

    def _load(self, answer: dict[str, Any]) -> Schema | str:
        if answer.get("schemaType") != "PROTOBUF":
            return NOT_PROTOBUF
        try:
            return Schema(compiled(answer["schema"], imports(self._registry, answer)))
        except BadSchema:
            return NOT_COMPILED

    def _fields(self, schema: Schema, payload: bytes) -> dict[str, Any] | str:
        try:
            indexes, begin = message_indexes(payload)
        except ValueError:
            return NO_INDEX
        if indexes not in schema.messages:
            schema.messages[indexes] = self._message(schema, indexes)
        message = schema.messages[indexes]
        return message if isinstance(message, str) else self._values(message, payload[begin:])

    def _message(self, schema: Schema, indexes: tuple[int, ...]) -> Message | str:
        descriptor = schema.compiled.message(indexes)
        if descriptor is None:
            return NO_MESSAGE
        found = {name: one for name, one in columns(descriptor).items() if name not in PLACE}
        self._learn((name, kind) for name, (kind, _) in found.items())
        made = library("google.protobuf.message_factory").GetMessageClass(descriptor)
        return Message(made.FromString, {name: read for name, (_, read) in found.items()})

    def _values(self, message: Message, payload: bytes) -> dict[str, Any] | str:
        try:
            value = message.parse(payload)
            if not value.IsInitialized():  # proto2: a required field is missing
                return NOT_OF_SCHEMA
            size = value.ByteSize()
            value.DiscardUnknownFields()
            if value.ByteSize() != size:
                return UNKNOWN_FIELDS
            return {name: read(value) for name, read in message.reads.items()}
        except (self._decode_error, UnicodeError, TypeError, ValueError):
            return NOT_OF_SCHEMA


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """The path to the message, and where the message begins; ValueError where there is none."""
    count, at = _zigzag(payload, 0)
    if not 0 <= count <= NESTING_MAX:
        raise ValueError("no count of indexes")
    found = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        found.append(index)
    return tuple(found) or (0,), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise ValueError("no varint")


@dataclass(frozen=True)
class ProtobufMode:
    """For the executors: the columns that the table has, and where the schemas are."""

    fixed: Fields
    registry: Registry

    def shape(self) -> ProtobufShape:
        return ProtobufShape(self.fixed, self.registry)
