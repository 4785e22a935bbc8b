"""What a topic's values become: the modes of ingest, by their names."""

import pyarrow as pa

from chronik.pipeline import avro_table, json_table, protobuf_table, raw_table
from chronik.pipeline.json_columns import Fields
from chronik.pipeline.json_rows import PLACE
from chronik.pipeline.plan import IngestError
from chronik.pipeline.registry import Registry
from chronik.pipeline.tables import IngestTable
from chronik.pipeline.tasks import Mode
from chronik.pipeline.warehouse import MODE

MODES = ("raw", "json", "avro", "protobuf")


def schema_of(mode: str) -> pa.Schema:
    """The columns of a new table."""
    return raw_table.ARROW if mode == "raw" else json_table.ARROW_PLACE


def place_column(mode: str, source: str) -> str:
    """The table's column for one of the source."""
    if mode == "raw":
        return source
    return next(name for name, of in PLACE.items() if of == source)


def columns_of(table: IngestTable) -> Fields:
    """The columns that came from values."""
    if table.properties[MODE] == "raw":
        return {}
    return {one.name: one.type for one in table.schema() if one.name not in PLACE}


def mode_of(table: IngestTable, fields: Fields, registry: Registry | None) -> Mode:
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
