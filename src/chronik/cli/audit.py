"""`chronik audit`: the verdict on ledgers, wherever they were written."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from chronik.cli._audit_engine import (
    AUTO,
    ENGINES,
    MEMORY,
    SPARK,
    chosen_engine,
    named_folders,
    spark_verdict,
)

if TYPE_CHECKING:
    from chronik.audit.anomaly import Policy, Verdict
    from chronik.audit.replicas import Damage
    from chronik.audit.rows import Row
    from chronik.trace.events import TraceEvent

OK, ANOMALIES = 0, 1
_STYLES = {"fail": "bold red", "warn": "yellow", "allowed": "dim"}
DEVIATION_SHARE = 0.10
_PATH = click.Path(exists=True, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("ledgers", metavar="LEDGER...", nargs=-1, required=True, type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="HTML report.")
@click.option(
    "--traces", type=_FOLDER, multiple=True, help="A node's traces: say where values were lost."
)
@click.option(
    "--replicas", type=_FOLDER, multiple=True, help="A node's data directory: the byte truth."
)
@click.option("--stall-fails", is_flag=True, help="A stall is an anomaly, not a warning.")
@click.option("--at-least-once", is_flag=True, help="Brokers failed: retries may duplicate.")
@click.option("--engine", type=click.Choice(ENGINES), default=AUTO, help="Where it is judged.")
@click.option("--master", default="local[*]", help="Spark master.", show_default=True)
@click.option("--exact-joins", is_flag=True, help="Spark: judge every row, screen no blocks.")
@click.option(
    "--tables",
    type=click.Path(file_okay=False, path_type=Path),
    help="Spark: write Parquet tables into this folder.",
)
def audit(
    ledgers: tuple[Path, ...],
    *,
    as_json: bool,
    report: Path | None,
    traces: tuple[Path, ...],
    replicas: tuple[Path, ...],
    stall_fails: bool,
    at_least_once: bool,
    engine: str,
    master: str,
    exact_joins: bool,
    tables: Path | None,
) -> None:
    """Judges ledger files, directories of them, or JSON lines of Kafka's Verifiable clients."""
    from chronik.audit.anomaly import Level, Policy
    from chronik.audit.report import write_report
    from chronik.cli.diagnose import trace_folders

    level = Level.FAIL if stall_fails else Level.WARN
    policy = Policy(stall_level=level, at_least_once=at_least_once)
    if tables or exact_joins or chosen_engine(engine, ledgers) == SPARK:
        if engine == MEMORY:
            raise click.UsageError("--tables and --exact-joins need --engine spark")
        verdict = spark_verdict(
            ledgers,
            policy,
            master,
            exact_joins=exact_joins,
            tables=tables,
            traces=trace_folders(traces) if traces else (),
            replicas=named_folders(replicas),
            on_damage=_tell_damage,
            plots=report is not None,
        )
    else:
        verdict = _judged_in_memory(ledgers, policy, traces, replicas, plots=report is not None)
    if report:
        report.write_text(write_report("chronik audit", {"audit": verdict}, []), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(verdict.to_dict(), indent=2))
    else:
        show_verdict(verdict, "audit")
    sys.exit(OK if verdict.ok else ANOMALIES)


def _judged_in_memory(
    ledgers: tuple[Path, ...],
    policy: "Policy",
    traces: tuple[Path, ...],
    replicas: tuple[Path, ...],
    *,
    plots: bool,
) -> "Verdict":
    from chronik.audit.plots import plot_data
    from chronik.audit.verdict import judge
    from chronik.audit.verify import add_losses
    from chronik.audit.where import where_lost

    rows, events = _ledger_rows(ledgers), _events(traces)
    verdict = judge(rows, policy)
    # A node that died may hold what was never committed: its files locate, they do not judge.
    add_losses(verdict, rows + _replica_rows(rows, replicas))
    if traces:
        verdict.measures["where_lost"] = where_lost(rows, events)
    if plots:
        verdict.measures["plots"] = plot_data(rows, events)
    return verdict


def _events(traces: tuple[Path, ...]) -> "list[TraceEvent]":
    from chronik.audit.diagnose import read_traces
    from chronik.cli.diagnose import trace_folders

    return read_traces(*trace_folders(traces)) if traces else []


def _ledger_rows(ledgers: tuple[Path, ...]) -> "list[Row]":
    from chronik.audit.ledger import LedgerError
    from chronik.audit.sources import read_any

    try:
        rows = read_any(ledgers)
    except (LedgerError, OSError) as error:
        raise click.UsageError(str(error)) from error
    if not rows:
        named = ", ".join(map(str, ledgers))
        raise click.UsageError(f"no rows of a ledger are in {named}: is it a directory of ledgers?")
    return rows


def _replica_rows(rows: "list[Row]", folders: tuple[Path, ...]) -> "list[Row]":
    from chronik.audit.replicas import replicas_of

    if not folders:
        return []
    found = replicas_of(rows, named_folders(folders))
    _tell_damage(found.damaged)
    return found.rows


def _tell_damage(damaged: "list[Damage]") -> None:
    from chronik.audit.replicas import damage_causes

    for cause in damage_causes(damaged):
        click.echo(f"{cause.name}: {cause.statement}", err=True)


def show_verdict(verdict: "Verdict", name: str, console: Console | None = None) -> None:
    console = console or Console()
    console.print(_partitions(verdict, name))
    if verdict.anomalies:
        console.print(_anomalies(verdict))
    for loss in verdict.measures.get("losses", []):
        console.print(loss["statement"], highlight=False)
    for place, count in verdict.measures.get("where_lost", {}).items():
        console.print(f"{count} lost: {place}")
    word = "[bold green]ok[/]" if verdict.ok else "[bold red]anomalies found[/]"
    console.print(f"{name}: {word}")


def _partitions(verdict: "Verdict", name: str) -> Table:
    rows = verdict.measures["partitions"]
    topics = {partition.rpartition("-")[0] for partition in rows}
    table = Table(title=f"{name}: {', '.join(sorted(topics))}")
    for column in ("partition", "sent", "read", "missed", "deviation", "offsets", "gaps", "log"):
        table.add_column(column, justify="left" if column == "partition" else "right")
    expected = sum(row["sent"] for row in rows.values()) / max(1, len(rows))
    for partition, row in rows.items():
        deviation = round(row["read"] - expected)
        far = abs(deviation) > DEVIATION_SHARE * expected
        table.add_row(
            partition.rpartition("-")[2] if len(topics) == 1 else partition,
            str(row["sent"]),
            str(row["read"]),
            str(row["missed"]),
            f"{'[yellow]' if far else ''}{deviation:+d}{'[/]' if far else ''}",
            f"{row['offset_min']}-{row['offset_max']}" if row["read"] else "-",
            str(row["gaps"]),
            f"{row['log_start']}-{row['log_end']}" if row["log_end"] >= 0 else "?",
        )
    return table


def _anomalies(verdict: "Verdict") -> Table:
    table = Table(title="anomalies")
    for column in ("level", "anomaly", "count", "example"):
        table.add_column(column, justify="right" if column == "count" else "left")
    for found in verdict.anomalies:
        style = _STYLES[found.level]
        example = found.examples[0].statement if found.examples else ""
        table.add_row(f"[{style}]{found.level}[/]", found.name, str(found.count), example)
    return table


command = audit
