"""SQL by DuckDB inside this process: for questions to small data, answered in about a second.

The same plan as for Spark: files of one snapshot, and the log from its offsets on. Big data is
Spark's: `fits` says where the border is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from chronik.pipeline import json_rows, registry_rows
from chronik.pipeline.client import READ_COMMITTED
from chronik.pipeline.fetch import OffsetRange, read_range
from chronik.pipeline.places import dataset_of
from chronik.pipeline.registry import Registry
from chronik.pipeline.sql_plan import LETTERS, RAW, Mode, Plan, View, plan
from chronik.pipeline.sql_text import SYSTEM, AsOf, for_duckdb
from chronik.pipeline.warehouse import Warehouse

COLD_BYTES_MAX = 1 << 30
HOT_RECORDS_MAX = 500_000
"""Up to these DuckDB is the faster one; they also bound the memory that it takes."""
_TYPES = re.compile("No function matches|Could not choose a best candidate")


class NotUnderstood(Exception):  # noqa: N818
    """DuckDB does not know the syntax or the function; Spark may."""


def fits(wanted: Plan) -> bool:
    """Whether the plan is small enough for one process."""
    return wanted.bytes <= COLD_BYTES_MAX and wanted.hot <= HOT_RECORDS_MAX


def query(
    bootstrap: str | None,
    warehouse: str | Path | Warehouse,
    text: str,
    *,
    as_of: AsOf | None = None,
    mode: Mode = "raw",
    registry: Registry | None = None,
    system: Mapping[str, pa.Table] | None = None,
) -> pa.Table:
    """The answer as an Arrow table; every table of the warehouse is a view of its name."""
    wanted = plan(text, bootstrap, warehouse, as_of=as_of, mode=mode, registry=registry)
    return answer(wanted, bootstrap, system or {})


def answer(
    wanted: Plan, bootstrap: str | None, system: Mapping[str, pa.Table], limit: int | None = None
) -> pa.Table:
    """Answers a plan; `system` has the tables about the cluster that it names."""
    with connected(system) as connection:
        for view in wanted.views:
            connection.register(view.name, rows_of(view, bootstrap))
        try:
            found = connection.sql(for_duckdb(wanted.text))
        except (duckdb.ParserException, duckdb.CatalogException) as error:
            raise NotUnderstood(str(error)) from error
        except duckdb.BinderException as error:
            if _TYPES.search(str(error)):  # Spark converts types where DuckDB does not
                raise NotUnderstood(str(error)) from error
            raise
        return _arrow(found if limit is None or found is None else found.limit(limit))


@contextmanager
def connected(system: Mapping[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB of our own, with the tables about the cluster."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # Otherwise a name that is no table may be a variable of this very program.
        connection.execute("SET python_enable_replacements = false")
        connection.execute(f"CREATE SCHEMA {SYSTEM}")
        for name, rows in system.items():
            connection.register(f"{SYSTEM}_{name}", rows)
            connection.execute(f'CREATE VIEW {SYSTEM}."{name}" AS SELECT * FROM "{SYSTEM}_{name}"')
        yield connection


def _arrow(found: Any) -> pa.Table:
    if found is None:  # a statement without rows
        return pa.table({})
    table: pa.Table = found.to_arrow_table()
    return table


def rows_of(view: View, bootstrap: str | None) -> ds.Dataset:
    """Both parts of a view, read when the query is run; columns that a file lacks are null."""
    hot = None if not view.ranges or bootstrap is None else _hot(view, bootstrap)
    schema = view.schema
    if schema is None:
        schema = RAW if hot is None else hot.schema
    rows = schema.empty_table() if hot is None else hot.cast(schema)
    parts: Any = [ds.dataset(rows), *([_cold(view, schema)] if view.files else [])]
    both: ds.Dataset = ds.dataset(parts)
    return both


def _cold(view: View, schema: pa.Schema) -> ds.Dataset:
    found = dataset_of(view.files, schema, view.access)
    if not view.letters:
        return found
    kept = pc.scalar(False)
    for partition, end in view.next.items():
        kept |= (pc.field("partition") == partition) & (pc.field("offset") < end)
    return ds.dataset(found.to_table(filter=kept))


def _hot(view: View, bootstrap: str) -> pa.Table:
    if (reader := view.reader) is not None:
        found = reader(_batches(view, bootstrap, registry_rows.COLUMNS))
        return pa.Table.from_batches(found, reader.wanted)
    records = pa.Table.from_batches(_batches(view, bootstrap, RAW.names), RAW)
    if view.letters:
        assert view.fields is not None
        return json_rows.letters(records, view.fields).select(LETTERS.names)
    if view.mode == "raw":
        return records
    return json_rows.rows(records, view.fields)


def _batches(view: View, bootstrap: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for (topic, partition), (start, end) in view.ranges.items():
        wanted = OffsetRange(topic, partition, start, end)
        yield from read_range(bootstrap, wanted, columns=columns, isolation=READ_COMMITTED)
