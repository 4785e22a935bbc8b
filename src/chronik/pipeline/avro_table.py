"""One row per record whose value is Avro with a registry's header: a column per field, its place.

Columns are only ever added. A value without a header, of a schema that the registry does not have,
that cannot be read by its schema, or with a field of another type than the table's column, is a
bad record and goes to the dead letter table. A registry that does not answer stops the ingest.
"""

import importlib
import io
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from chronik.pipeline.avro_types import AvroTypes, Convert
from chronik.pipeline.json_columns import Fields
from chronik.pipeline.json_rows import PLACE
from chronik.pipeline.registry import Registry
from chronik.pipeline.registry_shape import RegistryShape

NOT_AVRO = "the registry's schema is not Avro"
NOT_OF_SCHEMA = "the value is not Avro of its schema"


class NoAvroError(Exception):
    """The package that reads Avro is not installed."""


def fastavro() -> Any:
    """The library, only where Avro is read."""
    try:
        return importlib.import_module("fastavro")
    except ImportError as error:
        raise NoAvroError("Avro needs the package 'fastavro': pip install fastavro") from error


@dataclass(frozen=True)
class Schema:
    """A writer's schema, ready to read values."""

    parsed: Any
    columns: dict[str, tuple[pa.DataType, Convert]]
    is_record: bool


class AvroShape(RegistryShape[Schema]):
    """Rows of one task."""

    def __init__(self, fixed: Fields, registry: Registry) -> None:
        super().__init__(fixed, registry)
        self._library = fastavro()

    def _fields(self, schema: Schema, payload: bytes) -> dict[str, Any] | str:
        stream = io.BytesIO(payload)
        try:
            found = self._library.schemaless_reader(stream, schema.parsed, None)
        except Exception:  # noqa: BLE001 - bytes of any kind make it raise anything
            return NOT_OF_SCHEMA
        if stream.read(1):
            return NOT_OF_SCHEMA
        fields = found if schema.is_record else {"value": found}
        return {name: convert(fields[name]) for name, (_, convert) in schema.columns.items()}

    def _load(self, answer: dict[str, Any]) -> Schema | str:
        if answer.get("schemaType", "AVRO") != "AVRO":
            return NOT_AVRO
        if answer.get("references"):
            return "the schema refers to others, which is not supported"
        told = json.loads(answer["schema"])
        try:
            parsed = self._library.parse_schema(told)
        except self._library.schema.SchemaParseException:
            return NOT_AVRO
        is_record = isinstance(told, dict) and told.get("type") == "record"
        columns = {
            name: one for name, one in AvroTypes().columns(told).items() if name not in PLACE
        }
        self._learn((name, kind) for name, (kind, _) in columns.items())
        return Schema(parsed, columns, is_record)


@dataclass(frozen=True)
class AvroMode:
    """For the executors: the columns that the table has, and where the schemas are."""

    fixed: Fields
    registry: Registry

    def shape(self) -> AvroShape:
        return AvroShape(self.fixed, self.registry)
