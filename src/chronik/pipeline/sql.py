"""SQL over tables and log at once: the table up to its committed offset, the log from there on.

The two parts meet at the offset of one snapshot, so their union needs no deduplication, and a
record is in the result from its acknowledgement on. Bad records are in their dead letter view.
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from chronik.pipeline import dlq_table, json_table, raw_table
from chronik.pipeline.files_source import parquet_rows
from chronik.pipeline.ingest import log_records
from chronik.pipeline.registry import Registry
from chronik.pipeline.rows_source import explained_rows
from chronik.pipeline.sql_plan import Mode, Plan, View, plan
from chronik.pipeline.sql_text import AsOf
from chronik.pipeline.stored_tables import stored_tables
from chronik.pipeline.warehouse import Warehouse


def query(  # noqa: PLR0913 - options with names
    spark: SparkSession,
    bootstrap: str | None,
    warehouse: str | Path | Warehouse,
    text: str,
    *,
    as_of: AsOf | None = None,
    mode: Mode = "raw",
    registry: Registry | None = None,
    system: Mapping[str, pa.Table] | None = None,
) -> DataFrame:
    """The answer to a SQL query; every table of the warehouse is a view of its name.

    bootstrap: where the log is; None leaves the log out and answers from the tables alone.
    as_of: the tables as they were then, without the log. mode: how a topic without table is read.
    registry: where schemas are, if it is not where the tables say.
    """
    wanted = plan(text, bootstrap, warehouse, as_of=as_of, mode=mode, registry=registry)
    return answer(spark, wanted, bootstrap, system or {})


def answer(
    spark: SparkSession, wanted: Plan, bootstrap: str | None, system: Mapping[str, pa.Table]
) -> DataFrame:
    """Answers a plan; `system` has the tables about the cluster that it names."""
    for name, rows in system.items():
        spark.createDataFrame(rows).createOrReplaceGlobalTempView(name)
    for view in wanted.views:
        rows_of(spark, view, bootstrap).createOrReplaceTempView(view.name)
    return spark.sql(wanted.text)


def register_views(
    spark: SparkSession,
    bootstrap: str | None,
    warehouse: str | Path | Warehouse,
    registry: Registry | None = None,
) -> list[str]:
    """Makes a view per table, dead letters too, and returns their names.

    A view holds what was there when it was made, so that one query sees one state: Spark plans a
    source once per view. Call it again for what is new since; that starts no job.
    """
    names = [one for one in stored_tables(warehouse) if not one.endswith(dlq_table.SUFFIX)]
    found = []
    for name in sorted(names):
        wanted = plan(f"{name} {name}{dlq_table.SUFFIX}", bootstrap, warehouse, registry=registry)
        for view in wanted.views:
            rows_of(spark, view, bootstrap).createOrReplaceTempView(view.name)
            found.append(view.name)
    return found


def rows_of(spark: SparkSession, view: View, bootstrap: str | None) -> DataFrame:
    """Both parts of a view."""
    hot = None if bootstrap is None else _hot(spark, view, bootstrap)
    if hot is None:
        return _cold(spark, view)
    return _cold(spark, view).unionByName(hot) if view.files else hot


def _cold(spark: SparkSession, view: View) -> DataFrame:
    schema = raw_table.ARROW if view.schema is None else view.schema
    found = parquet_rows(spark, view.files, schema, view.access)
    if not (view.letters and view.files):
        return found
    kept = [f"partition = {one} AND offset < {end}" for one, end in view.next.items()]
    return found.where(" OR ".join(kept) or "false")


def _hot(spark: SparkSession, view: View, bootstrap: str) -> DataFrame | None:
    if not view.ranges:
        return None
    if (reader := view.reader) is not None:
        return explained_rows(spark, bootstrap, view.ranges, reader)
    records = log_records(spark, bootstrap, view.ranges)
    if view.mode == "raw":
        return raw_table.rows(records)
    if view.fields is None:
        fields = json_table.inferred(records)
    else:
        fields = json_table.fields_in(view.fields)
    judged = json_table.judged(records, fields)
    return dlq_table.rows(judged) if view.letters else json_table.rows(judged, fields)
