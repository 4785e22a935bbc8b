"""The one Arrow schema of trace events, shared by the node that writes and Spark that reads.

`kind` is an int8; the names are in the schema's metadata, so that a file explains itself. Times are
int64 nanoseconds, because Spark's timestamps stop at microseconds. Columns are only ever added, at
the end, with a new version.
"""

import json
from functools import cache
from typing import TYPE_CHECKING, Literal

from chronik.trace.events import EventKind, TraceEvent

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
VERSION_KEY = b"chronik.trace.version"
KINDS_KEY = b"chronik.trace.kinds"

ArrowType = Literal["int8", "int16", "int32", "int64", "string"]

COLUMNS: tuple[tuple[str, ArrowType], ...] = (
    ("time_ns", "int64"),
    ("mono_ns", "int64"),
    ("node", "int32"),
    ("kind", "int8"),
    ("topic", "string"),
    ("partition", "int32"),
    ("leader_epoch", "int32"),
    ("base_offset", "int64"),
    ("last_offset", "int64"),
    ("record_count", "int64"),
    ("bytes", "int64"),
    ("high_watermark", "int64"),
    ("log_end", "int64"),
    ("producer_id", "int64"),
    ("producer_epoch", "int16"),
    ("base_sequence", "int32"),
    ("acks", "int16"),
    ("client_id", "string"),
    ("connection_id", "int64"),
    ("correlation_id", "int32"),
    ("peer", "int32"),
    ("error_code", "int16"),
    ("duration_us", "int64"),
    ("detail", "string"),
)
"""Name and Arrow type of each column, in the order of `TraceEvent`."""
REQUIRED = 4
"""The first columns are never null."""

assert tuple(name for name, _ in COLUMNS) == TraceEvent._fields


@cache
def arrow_schema() -> "pa.Schema":
    """The schema with its version and the names of the kinds."""
    import pyarrow as pa  # noqa: PLC0415 - only where traces are on

    fields = [
        pa.field(name, pa.type_for_alias(type_name), nullable=index >= REQUIRED)
        for index, (name, type_name) in enumerate(COLUMNS)
    ]
    kinds = {kind.name.lower(): int(kind) for kind in EventKind}
    metadata: dict[bytes | str, bytes | str] = {
        VERSION_KEY: str(VERSION),
        KINDS_KEY: json.dumps(kinds),
    }
    return pa.schema(fields, metadata=metadata)


def check_version(schema: "pa.Schema") -> None:
    """Raises where a file was written with a schema that this code does not know."""
    found = (schema.metadata or {}).get(VERSION_KEY)
    if found != str(VERSION).encode():
        raise ValueError(f"trace schema version {found!r}; this reader knows {VERSION}")


def kind_names(schema: "pa.Schema") -> dict[int, str]:
    """Number to name, as the file's writer knew them."""
    kinds = json.loads((schema.metadata or {})[KINDS_KEY])
    return {number: name for name, number in kinds.items()}
