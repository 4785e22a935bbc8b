"""What a topic's values become: the modes of ingest, by their names."""

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.table import Table

from chronik.pipeline import avro_table, json_table, protobuf_table, raw_table
from chronik.pipeline.arrow_types import small_types
from chronik.pipeline.json_columns import Fields
from chronik.pipeline.plan import IngestError
from chronik.pipeline.registry import Registry
from chronik.pipeline.tasks import Mode
from chronik.pipeline.warehouse import MODE, quiet

MODES = ("raw", "json", "avro", "protobuf")


def schema_of(mode: str) -> pa.Schema:
    """The columns of a new table."""
    return raw_table.ARROW if mode == "raw" else json_table.ARROW_PLACE


def place_column(mode: str, source: str) -> str:
    """The table's column for one of the source."""
    if mode == "raw":
        return source
    return next(name for name, of in json_table.PLACE.items() if of == source)


def columns_of(table: Table) -> Fields:
    """The columns that came from values."""
    if table.properties[MODE] == "raw":
        return {}
    schema = small_types(table.schema().as_arrow())
    return {one.name: one.type for one in schema if one.name not in json_table.PLACE}


def mode_of(table: Table, fields: Fields, registry: Registry | None) -> Mode:
    """The table's mode for the executors, with the columns that are settled."""
    mode = table.properties[MODE]
    if mode == "raw":
        return raw_table.RawMode()
    if mode == "json":
        return json_table.JsonMode(fields)
    if registry is None:
        raise IngestError(f"mode {mode} needs the schema registry's URL")
    if mode == "avro":
        return avro_table.AvroMode(fields, registry)
    return protobuf_table.ProtobufMode(fields, registry)


def add_columns(table: Table, new: Mapping[str, pa.DataType]) -> None:
    """New columns, all of them nullable; they stay where the commit that needed them fails."""
    if not new:
        return
    with quiet(), table.update_schema() as update:
        update.union_by_name(pa.schema(list(new.items())))
