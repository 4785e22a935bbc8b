"""SQL over tables and log at once: the table up to its committed offset, the log from there on.

The two parts meet at the offset of one snapshot, so their union needs no deduplication, and a
record is in the result from its acknowledgement on. Bad records are in their dead letter view.
"""

from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from chronik.pipeline import dlq_table, json_table, raw_table
from chronik.pipeline.client import LATEST, READ_COMMITTED, Cluster, TopicPartition
from chronik.pipeline.ingest import log_records
from chronik.pipeline.table_rows import table_rows
from chronik.pipeline.warehouse import MODE, TOPIC, State, Warehouse, state_of, table_name


def query(
    spark: SparkSession, bootstrap: str | None, warehouse: str | Path, text: str
) -> DataFrame:
    """The answer to a SQL query; every table of the warehouse is a view of its name.

    bootstrap: where the log is; None leaves the log out and answers from the tables alone.
    """
    register_views(spark, bootstrap, Warehouse(warehouse), text)
    return spark.sql(text)


def register_views(
    spark: SparkSession, bootstrap: str | None, warehouse: Warehouse, text: str = ""
) -> list[str]:
    """Makes a view per table (only those that `text` names, where it is given)."""
    found = []
    for topic, name in warehouse.topics().items():
        if text and name.lower() not in text.lower():
            continue
        table = warehouse.load(name)
        assert table is not None
        live(spark, bootstrap, warehouse, table).createOrReplaceTempView(name)
        found.append(name)
        found += _letters_view(spark, warehouse, topic)
    return found


def _letters_view(spark: SparkSession, warehouse: Warehouse, topic: str) -> list[str]:
    name = table_name(topic) + dlq_table.SUFFIX
    letters = warehouse.load(name)
    if letters is None:
        return []
    table_rows(spark, letters, dlq_table.ARROW).createOrReplaceTempView(name)
    return [name]


def live(
    spark: SparkSession, bootstrap: str | None, warehouse: Warehouse, table: Table
) -> DataFrame:
    """The rows of a table and, as rows of the same table, what the log has after them."""
    schema = schema_of(table)
    cold = table_rows(spark, table, schema)
    if bootstrap is None:
        return cold
    ranges = hot_ranges(bootstrap, table.properties[TOPIC], state_of(table))
    if not ranges:
        return cold
    records = log_records(spark, bootstrap, ranges)
    if table.properties[MODE] == "raw":
        return cold.unionByName(raw_table.rows(records))
    fields = json_table.fields_in(schema)
    return cold.unionByName(json_table.rows(json_table.judged(records, fields), fields))


def schema_of(table: Table) -> pa.Schema:
    """The columns of a table, in Arrow's small types."""
    if table.properties[MODE] == "raw":
        return raw_table.ARROW
    return json_table.arrow_schema(json_table.fields_in(table.schema().as_arrow()))


def hot_ranges(bootstrap: str, topic: str, state: State) -> dict[TopicPartition, tuple[int, int]]:
    """What the log has after the table's offsets."""
    with Cluster(bootstrap) as cluster:
        partitions = cluster.partitions([topic])
        ends = cluster.offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
        starts = cluster.offsets(dict.fromkeys(partitions, -2))
    found = {}
    for one, end in ends.items():
        start = state.next.get(one[1], starts[one])
        if end > start:
            found[one] = (start, end)
    return found
