"""`chronik sql`: a query over tables and log at once."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from chronik.cli._client import require_reachable
from chronik.cli._options import client_options
from chronik.cli._output import json_option, note, print_table
from chronik.cli._pipeline import master_option, pipeline_command, warehouse_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@click.command("sql")
@click.argument("query_text", metavar="QUERY")
@click.option("--cold", is_flag=True, help="Only the tables, not the newest records of the log.")
@click.option("--limit", type=click.IntRange(1), default=1_000, show_default=True, metavar="ROWS")
@json_option
@warehouse_option
@master_option
@client_options
@pipeline_command
def command(
    query_text: str,
    cold: bool,
    limit: int,
    as_json: bool,
    warehouse: str,
    master: str,
    bootstrap: str,
    extra: tuple[str, ...],
) -> None:
    """Answer a SQL query over the tables of the warehouse and what the log has after them.

    Every table is a view of its topic's name ('.' and '-' become '_'); bad records are in
    TABLE__dlq. A record is in the answer from its acknowledgement on.

    \b
    chronik sql "SELECT count(*), max(_timestamp) FROM orders"
    chronik sql "SELECT country, sum(amount) FROM orders GROUP BY country" --json
    """
    from chronik.pipeline.session import require_java, session
    from chronik.pipeline.sql import query

    require_java()
    if not cold:
        require_reachable(bootstrap)
    spark = session(master)
    answer = query(spark, None if cold else bootstrap, warehouse, query_text)
    _print(answer, limit, as_json)


def _print(answer: "DataFrame", limit: int, as_json: bool) -> None:
    rows = answer.limit(limit + 1).collect()
    shown = [[_plain(value) for value in row] for row in rows[:limit]]
    if as_json:
        for row in shown:
            click.echo(json.dumps(dict(zip(answer.columns, row, strict=True)), default=str))
    else:
        numbers = [name for name, kind in answer.dtypes if kind in {"int", "bigint", "double"}]
        print_table(answer.columns, shown, numbers=numbers)
    if len(rows) > limit:
        note(f"Only the first {limit} rows; --limit shows more.")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    """Bytes as text where they are text."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    return value
