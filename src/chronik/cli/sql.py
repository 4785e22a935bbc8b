"""`chronik sql`: a query over tables and log at once."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import click

from chronik.cli._client import require_reachable
from chronik.cli._options import bootstrap_option
from chronik.cli._output import json_option, note, print_table
from chronik.cli._pipeline import (
    catalog_option,
    master_option,
    pipeline_command,
    registry_options,
    warehouse_option,
)
from chronik.cli._pipeline_checks import require_master, require_topics

if TYPE_CHECKING:
    import pyarrow as pa

    from chronik.pipeline.sql_plan import Plan

Engine = Literal["auto", "duckdb", "spark"]
LOCAL = "local[*]"
EVIDENCE = ("chronik-data", "chronik-run", "chronik-verify")


@click.command("sql")
@click.argument("query_text", metavar="QUERY")
@click.option("--cold", is_flag=True, help="Only the tables, not the newest records of the log.")
@click.option(
    "--as-of",
    metavar="TIME|SNAPSHOT",
    help="The tables as they were then, without the log; a time without a zone is UTC.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "duckdb", "spark"]),
    default="auto",
    show_default=True,
    help="auto: DuckDB for small data where it is installed, Spark for all else.",
)
@click.option(
    "--mode",
    type=click.Choice(["raw", "json"]),
    default="raw",
    show_default=True,
    help="How a topic that has no table yet is read.",
)
@registry_options
@click.option(
    "--evidence",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help=f"Folder of traces and reports; by default {', '.join(EVIDENCE)}. Repeatable.",
)
@click.option("--limit", type=click.IntRange(1), default=1_000, show_default=True, metavar="ROWS")
@json_option
@catalog_option
@warehouse_option
@master_option
@bootstrap_option
@pipeline_command
def command(
    query_text: str,
    cold: bool,
    as_of: str | None,
    engine: Engine,
    mode: Literal["raw", "json"],
    registry: str | None,
    registry_config: dict[str, str],
    evidence: tuple[str, ...],
    limit: int,
    as_json: bool,
    catalog: dict[str, str],
    warehouse: str,
    master: str,
    bootstrap: str,
) -> None:
    """Answer a SQL query over the tables of the warehouse and what the log has after them.

    Every table is a view of its topic's name ('.' and '-' become '_'), a topic without a table
    too; bad records are in TABLE__dlq. A record is in the answer from its acknowledgement on.
    Tables about the cluster: chronik.topics, .offsets, .brokers, .groups, .lag, .snapshots,
    .traces and .audits.

    \b
    chronik sql "SELECT count(*), max(_timestamp) FROM orders"
    chronik sql "SELECT country, sum(amount) FROM orders GROUP BY country" --json
    chronik sql "SELECT count(*) FROM orders TIMESTAMP AS OF '2026-07-31T12:00:00Z'"
    chronik sql "SELECT * FROM chronik.lag WHERE lag > 0"
    """
    from chronik.pipeline.registry import Registry
    from chronik.pipeline.sql_plan import plan
    from chronik.pipeline.sql_text import parse_as_of
    from chronik.pipeline.system_tables import Places, system_tables
    from chronik.pipeline.warehouse import Warehouse

    if registry_config and registry is None:
        raise click.UsageError("--registry-config needs --registry: it is for no other place")
    require_master(master)
    where = None if cold else bootstrap
    with _refusals():
        when = None if as_of is None else parse_as_of(as_of)
        if where is not None and when is None:
            require_reachable(bootstrap)
            require_topics(bootstrap, ())
        place = Warehouse(warehouse, catalog) if catalog else warehouse
        schemas = None if registry is None else Registry(registry, registry_config)
        wanted = plan(query_text, where, place, as_of=when, mode=mode, registry=schemas)
        folders = evidence or tuple(_existing(EVIDENCE))
        system = system_tables(wanted.system, Places(where, place, folders))
        _refuse_mistakes(wanted, system, engine)
    _print(_answer(wanted, where, system, engine, master, limit + 1), limit, as_json)


@contextmanager
def _refusals() -> Iterator[None]:
    from chronik.pipeline.sql_text import BadQuery

    try:
        yield
    except BadQuery as error:
        raise click.ClickException(str(error)) from error


def _refuse_mistakes(wanted: "Plan", system: "dict[str, pa.Table]", engine: Engine) -> None:
    """A mistake in the text is told before an engine begins, where DuckDB is there to see it."""
    from chronik.pipeline.sql_text import BadQuery

    try:
        from chronik.pipeline.sql_check import Unparsed, problem
    except ImportError:
        return
    try:
        found = problem(wanted, system)
    except Unparsed as error:
        found = str(error)
        if engine != "duckdb" and _has_java():
            from chronik.pipeline.spark_parser import syntax_error

            found = syntax_error(wanted.text)
    if found is not None:
        raise BadQuery(found)


def _existing(folders: tuple[str, ...]) -> list[str]:
    from pathlib import Path

    return [one for one in folders if Path(one).is_dir()]


def _answer(
    wanted: "Plan",
    bootstrap: str | None,
    system: "dict[str, pa.Table]",
    engine: Engine,
    master: str,
    limit: int,
) -> "pa.Table":
    """By the engine that was named, or by the one that suits."""
    if engine == "duckdb" or (engine == "auto" and master == LOCAL and _small(wanted)):
        try:
            return _by_duckdb(wanted, bootstrap, system, limit)
        except _NotUnderstoodError as error:
            if engine == "duckdb" or not _has_java():
                raise click.ClickException(str(error)) from error
            note(f"DuckDB does not understand this ({str(error).splitlines()[0]}); asking Spark.")
    return _by_spark(wanted, bootstrap, system, master, limit)


class _NotUnderstoodError(Exception):
    pass


def _small(wanted: "Plan") -> bool:
    try:
        from chronik.pipeline.sql_duckdb import fits
    except ImportError:
        return False
    return fits(wanted) or not _has_java()


def _has_java() -> bool:
    from chronik.pipeline.session import JAVA_MIN, java_version

    return (java_version() or 0) >= JAVA_MIN


def _by_duckdb(
    wanted: "Plan", bootstrap: str | None, system: "dict[str, pa.Table]", limit: int
) -> "pa.Table":
    try:
        import duckdb

        from chronik.pipeline.sql_duckdb import NotUnderstood, answer
    except ImportError as error:
        raise click.ClickException("--engine duckdb needs it: pip install duckdb") from error
    try:
        return answer(wanted, bootstrap, system, limit)
    except NotUnderstood as error:
        raise _NotUnderstoodError(str(error)) from error
    except duckdb.Error as error:
        raise click.ClickException(str(error)) from error


def _by_spark(
    wanted: "Plan", bootstrap: str | None, system: "dict[str, pa.Table]", master: str, limit: int
) -> "pa.Table":
    from chronik.pipeline.session import require_java, session
    from chronik.pipeline.sql import answer

    require_java()
    for one in wanted.views:
        if one.registry is not None:
            one.registry.require()
    note(f"Starting Spark ({master}) ...")
    found: pa.Table = answer(session(master), wanted, bootstrap, system).limit(limit).toArrow()
    return found


def _print(answer: "pa.Table", limit: int, as_json: bool) -> None:
    import pyarrow as pa

    shown = answer.slice(0, limit)
    names = answer.column_names
    columns = [[_plain(value) for value in column.to_pylist()] for column in shown.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    if as_json:
        for row in rows:
            click.echo(json.dumps(dict(zip(names, row, strict=True)), default=str))
    else:
        numbers = [
            one.name
            for one in answer.schema
            if pa.types.is_integer(one.type) or pa.types.is_floating(one.type)
        ]
        print_table(names, rows, numbers=numbers)
    if answer.num_rows > limit:
        note(f"Only the first {limit} rows; --limit shows more.")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    """Bytes as text where they are text."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="backslashreplace")
    return value
