"""One row per trace event: what a node did with a batch, from the nodes' trace files.

The columns are those of the trace schema, with `kind` by its name and `time` as a timestamp.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from chronik.trace.files import SUFFIX
from chronik.trace.reader import read_file
from chronik.trace.schema import arrow_schema, kind_names

_NAMES = kind_names(arrow_schema())
_KINDS = pa.array([_NAMES[number] for number in sorted(_NAMES)])
_NUMBERS = pa.array(sorted(_NAMES), pa.int8())
TIME = pa.timestamp("us", tz="UTC")


def read(folders: Iterable[Path]) -> pa.Table:
    """The events of every trace file under the folders; torn tails end their files."""
    files = sorted({path for one in folders for path in one.rglob(f"trace-*{SUFFIX}")})
    batches = [batch for path in files for batch in read_file(path)]
    return pa.Table.from_batches(batches, arrow_schema())


def rows(events: pa.Table) -> pa.Table:
    """In the order of their times."""
    names = pc.take(_KINDS, pc.index_in(events.column("kind"), _NUMBERS))
    times = pc.divide(events.column("time_ns"), 1_000).cast(TIME)
    at = events.schema.get_field_index("kind")
    named = events.replace_schema_metadata().set_column(at, "kind", names)
    return named.add_column(0, "time", times).sort_by("time_ns")
