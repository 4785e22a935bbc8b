"""`chronik pipeline status`: how far the tables are behind their topics."""

import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from chronik.cli._client import require_reachable
from chronik.cli._options import bootstrap_option
from chronik.cli._output import json_option, print_json, print_table, size_text
from chronik.cli._pipeline import (
    catalog_option,
    pipeline_command,
    tell_of_delta,
    tell_of_nothing,
    warehouse_option,
)

if TYPE_CHECKING:
    from chronik.pipeline.status import TableStatus

CLEAR = "\033[H\033[2J\033[3J"


@click.command("status")
@click.option("--cold", is_flag=True, help="Do not ask the cluster: no lag.")
@click.option(
    "--watch",
    type=click.FloatRange(0.1),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Show it again and again, every 2 seconds by default.",
)
@click.option("--prometheus", is_flag=True, help="Print Prometheus' text format.")
@json_option
@catalog_option
@warehouse_option
@bootstrap_option
@pipeline_command
def command(
    cold: bool,
    watch: float | None,
    prometheus: bool,
    as_json: bool,
    catalog: dict[str, str],
    warehouse: str,
    bootstrap: str,
) -> None:
    """Show lag per partition, the rate, the last commit and bad records. Needs no Spark.

    \b
    chronik pipeline status --watch
    chronik pipeline status --json | jq '.[].lag'
    """
    from chronik.pipeline.status import status
    from chronik.pipeline.warehouse import Warehouse

    if prometheus and as_json:
        raise click.UsageError("--prometheus and --json: choose one")
    if not cold:
        require_reachable(bootstrap)
    while True:
        place = Warehouse(warehouse, catalog) if catalog else warehouse
        tables = status(None if cold else bootstrap, place)
        _show(tables, warehouse, as_json, prometheus, again=watch is not None)
        tell_of_delta(warehouse)
        if watch is None:
            return
        time.sleep(watch)


def _show(
    tables: "list[TableStatus]", warehouse: str, as_json: bool, prometheus: bool, *, again: bool
) -> None:
    if as_json:
        print_json([as_dict(one) for one in tables])
        return
    if prometheus:
        from chronik.pipeline.status_metrics import metrics_text

        click.echo(metrics_text(tables), nl=False)
        return
    if again and sys.stdout.isatty():
        click.echo(CLEAR, nl=False)
    if not tables:
        tell_of_nothing(warehouse)
        return
    _show_partitions(tables)
    click.echo()
    _show_tables(tables)


def _show_partitions(tables: "list[TableStatus]") -> None:
    parts = [(one, part) for one in tables for part in one.partitions]
    rows = [
        (one.table, p.partition, p.table_end, p.log_end, p.lag, p.deleted or None)
        for one, p in parts
    ]
    columns = ("table", "partition", "ingested", "log end", "lag", "deleted")
    print_table(columns, rows, numbers=columns[1:], red=lambda at: parts[at][1].deleted > 0)


def _show_tables(tables: "list[TableStatus]") -> None:
    several = any(one.format != "iceberg" for one in tables)
    rows = [
        (
            one.table,
            *([one.format] if several else []),
            one.rows,
            one.bad,
            one.files,
            size_text(one.bytes),
            None if one.offsets_per_s is None else round(one.offsets_per_s),
            time_text(one.committed_ms),
        )
        for one in tables
    ]
    columns = (
        "table",
        *(["format"] if several else []),
        "rows",
        "bad",
        "files",
        "size",
        "offsets/s",
        "last commit",
    )
    numbers = [one for one in columns[1:-1] if one != "format"]
    print_table(columns, rows, numbers=numbers)


def as_dict(table: "TableStatus") -> dict[str, Any]:
    """For JSON, with what is computed."""
    parts = [asdict(p) | {"lag": p.lag, "deleted": p.deleted} for p in table.partitions]
    return asdict(table) | {"lag": table.lag, "partitions": parts}


def time_text(milliseconds: int | None) -> str | None:
    """A moment in UTC."""
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
