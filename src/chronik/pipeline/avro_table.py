"""One row per record whose value is Avro with a registry's header: a column per field, its place.

Columns are only ever added. A value without a header, of a schema that the registry does not have,
that cannot be read by its schema, or with a field of another type than the table's column, is a
bad record and goes to the dead letter table. A registry that does not answer stops the ingest.
"""

import importlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from chronik.pipeline.avro_types import AvroTypes, Convert, text
from chronik.pipeline.json_columns import OTHER_TYPE, Fields
from chronik.pipeline.json_table import PLACE
from chronik.pipeline.registry import HEADER_BYTES, Registry, UnknownSchema, schema_number

NO_HEADER = "the value has no registry header (a zero byte and four of the schema's number)"
NOT_AVRO = "the registry's schema is not Avro"
NOT_OF_SCHEMA = "the value is not Avro of its schema"
_REFUSED = (TypeError, ValueError, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)


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


class AvroShape:
    """Rows of one task."""

    columns = (*PLACE.values(), "value")

    def __init__(self, fixed: Mapping[str, pa.DataType], registry: Registry) -> None:
        self._fixed = dict(fixed)
        self._registry = registry
        self._schemas: dict[int, Schema | str] = {}
        self.new: Fields = {}
        self.widened = False
        self._library = fastavro()

    def rows(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        read = [self._read(value) for value in batch.column("value").to_pylist()]
        rows: list[Any] = [one if isinstance(one, dict) else {} for one in read]
        reasons: list[Any] = [one if isinstance(one, str) else None for one in read]
        columns = {
            name: _column(rows, reasons, name, kind)
            for name, kind in (self._fixed | self.new).items()
        }
        place = {name: batch.column(source) for name, source in PLACE.items()}
        return pa.RecordBatch.from_pydict(place | columns), pa.array(reasons, pa.string())

    def _read(self, value: bytes | None) -> dict[str, Any] | str | None:
        """The fields, or what is wrong; None for no value."""
        if value is None:
            return None
        number = schema_number(value)
        if number is None:
            return NO_HEADER
        schema = self._schema(number)
        if isinstance(schema, str):
            return schema
        stream = io.BytesIO(value[HEADER_BYTES:])
        try:
            found = self._library.schemaless_reader(stream, schema.parsed, None)
        except Exception:  # noqa: BLE001 - bytes of any kind make it raise anything
            return NOT_OF_SCHEMA
        if stream.read(1):
            return NOT_OF_SCHEMA
        fields = found if schema.is_record else {"value": found}
        return {name: convert(fields[name]) for name, (_, convert) in schema.columns.items()}

    def _schema(self, number: int) -> Schema | str:
        if number not in self._schemas:
            self._schemas[number] = self._load(number)
        return self._schemas[number]

    def _load(self, number: int) -> Schema | str:
        try:
            answer = self._registry.schema(number)
        except UnknownSchema as error:
            return str(error)
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
        for name, (kind, _) in columns.items():
            if name not in self._fixed:
                self._add(name, kind)
        return Schema(parsed, columns, is_record)

    def _add(self, name: str, kind: pa.DataType) -> None:
        known = self.new.setdefault(name, kind)
        if known != kind:
            self.widened = True
            self.new[name] = pa.string()


def _column(rows: list[Any], reasons: list[Any], name: str, kind: pa.DataType) -> Any:
    """One column; rows whose value does not fit become bad."""
    values = [row.get(name) for row in rows]
    if kind == pa.string():
        values = [_as_text(one) for one in values]
    try:
        return pa.array(values, kind)
    except _REFUSED:
        pass
    for at, value in enumerate(values):
        try:
            pa.array([value], kind)
        except _REFUSED:
            rows[at], reasons[at], values[at] = {}, OTHER_TYPE, None
    return pa.array(values, kind)


def _as_text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else text(value)


@dataclass(frozen=True)
class AvroMode:
    """For the executors: the columns that the table has, and where the schemas are."""

    fixed: Fields
    registry: Registry

    def shape(self) -> AvroShape:
        return AvroShape(self.fixed, self.registry)
