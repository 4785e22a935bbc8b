"""Rows of records that name their schema in a registry: what Avro and Protobuf have in common.

Columns are only ever added, members of a nested record too. A value without a header, of a schema
that the registry does not have, that cannot be read by its schema, or with a field of another type
than the table's column, is a bad record. A registry that does not answer stops the ingest.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import pyarrow as pa

from chronik.pipeline.arrow_types import conflict, united
from chronik.pipeline.avro_types import text
from chronik.pipeline.json_columns import OTHER_TYPE, Fields
from chronik.pipeline.json_rows import PLACE
from chronik.pipeline.registry import HEADER_BYTES, Registry, UnknownSchema, schema_number

NO_HEADER = "the value has no registry header (a zero byte and four of the schema's number)"
_REFUSED = (TypeError, ValueError, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)
S = TypeVar("S")


class RegistryShape(Generic[S]):
    """Rows of one task; `S` is a schema that is ready to read values."""

    columns = (*PLACE.values(), "value")

    def __init__(self, fixed: Mapping[str, pa.DataType], registry: Registry) -> None:
        self._fixed = dict(fixed)
        self._registry = registry
        self._schemas: dict[int, S | str] = {}
        self.new: Fields = {}
        self.widened = False

    def _load(self, answer: dict[str, Any]) -> S | str:
        """A schema of the registry, or why it cannot be used."""
        raise NotImplementedError

    def _fields(self, schema: S, payload: bytes) -> dict[str, Any] | str:
        """What follows the header, read by its schema; or what is wrong with it."""
        raise NotImplementedError

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
        if number not in self._schemas:
            self._schemas[number] = self._ask(number)
        schema = self._schemas[number]
        return schema if isinstance(schema, str) else self._fields(schema, value[HEADER_BYTES:])

    def _ask(self, number: int) -> S | str:
        try:
            return self._load(self._registry.schema(number))
        except UnknownSchema as error:
            return str(error)

    def _learn(self, found: Iterable[tuple[str, pa.DataType]]) -> None:
        """The columns of a schema. One that the table has keeps its type and may get members."""
        for name, kind in found:
            known = self.new.get(name, self._fixed.get(name))
            if known is None:
                self.new[name] = kind
                continue
            both = united(known, kind)
            if name not in self._fixed and conflict(known, kind):
                both = pa.string()
            if both != known:
                self.new[name] = both
                self.widened = True


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
