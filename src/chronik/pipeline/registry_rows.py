"""Rows of an Avro or Protobuf table straight from the log: by the very shapes that ingest has.

A function from Arrow batches to Arrow batches, so that it serves both engines: within this process,
and in the tasks of Spark's source (`rows_source`), where it is called per task and not per row.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from chronik.pipeline.avro_table import AvroMode
from chronik.pipeline.json_rows import PLACE
from chronik.pipeline.protobuf_table import ProtobufMode
from chronik.pipeline.registry import Registry

COLUMNS: Final = (*PLACE.values(), "value")
"""What is needed of the log."""
_MODES: Final[dict[str, type[AvroMode] | type[ProtobufMode]]] = {
    "avro": AvroMode,
    "protobuf": ProtobufMode,
}
MODES: Final = tuple(_MODES)


@dataclass(frozen=True)
class RegistryRows:
    """The records that become rows of a table, or those that become its dead letters.

    The columns are the table's: one that a new schema brings comes with the commit that adds it, as
    for JSON. It is read all the same, because what does not fit in it makes its record bad.
    """

    mode: str
    table: pa.Schema
    registry: Registry
    wanted: pa.Schema
    """The table's columns, or those of the dead letters."""
    letters: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fixed = {one.name: one.type for one in self.table if one.name not in PLACE}
        shape = _MODES[self.mode](fixed, self.registry).shape()
        for batch in batches:
            rows, reasons = shape.rows(batch)
            yield self._bad(batch, reasons) if self.letters else self._good(rows, reasons)

    def _good(self, rows: pa.RecordBatch, reasons: Any) -> pa.RecordBatch:
        # A struct may have got members that the table's does not have yet.
        columns = [rows.column(one.name).cast(one.type) for one in self.wanted]
        found = pa.RecordBatch.from_arrays(columns, schema=self.wanted)
        return found.filter(reasons.is_null())

    def _bad(self, batch: pa.RecordBatch, reasons: Any) -> pa.RecordBatch:
        columns = [batch.column(one.name) for one in self.wanted if one.name != "reason"]
        found = pa.RecordBatch.from_arrays([*columns, reasons], schema=self.wanted)
        return found.filter(reasons.is_valid())
