"""`chronik verify`: produce to any Kafka cluster, read it back, and judge what happened."""

import functools
import json
import logging
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from chronik.cli.audit import show_verdict

if TYPE_CHECKING:
    from chronik.audit.verify import Result
    from chronik.audit.workload import Plan, Progress

    Show = Callable[[Progress], None]

OK, ANOMALIES, UNREACHABLE = 0, 1, 2
CLIENTS = ("confluent", "kafka-python", "aiokafka")

_OPTIONS = (
    click.option(
        "--bootstrap", required=True, metavar="HOST:PORT[,...]", help="Bootstrap servers."
    ),
    click.option("--client", type=click.Choice(CLIENTS), default="confluent", show_default=True),
    click.option("--messages", type=click.IntRange(1), default=5_000, show_default=True),
    click.option(
        "--rate", type=click.FloatRange(0), default=0.0, help="Per second; 0 is no limit."
    ),
    click.option("--acks", type=click.Choice(("0", "1", "all")), default="all", show_default=True),
    click.option("--idempotent", is_flag=True, help="An idempotent producer."),
    click.option("--size", type=click.IntRange(32), default=100, show_default=True, help="Bytes."),
    click.option("--keys", type=click.IntRange(0), default=0, help="Different keys; 0 is no key."),
    click.option("--partitions", type=click.IntRange(1), default=3, show_default=True),
    click.option("--replication", type=click.IntRange(1), default=1, show_default=True),
    click.option("--group/--assign", default=False, help="Read as a group, or assigned (default)."),
    click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=60.0, help="Seconds."),
    click.option("--at-least-once", is_flag=True, help="Brokers fail: retries may duplicate."),
    click.option("--topic", default="", help="Name of the new topic (default: made up)."),
    click.option(
        "--ledger", type=click.Path(file_okay=False, path_type=Path), help="Keep ledgers."
    ),
    click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="HTML report."),
    click.option("--json", "as_json", is_flag=True, help="Print the results as JSON."),
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that all runs share, as one plan."""

    @functools.wraps(command)
    def with_plan(*, report: Path | None, as_json: bool, **options: Any) -> None:
        from chronik.audit.clients import ClientError

        try:
            command(_plan(options), report=report, as_json=as_json)
        except ClientError as error:
            click.echo(f"chronik verify: {error}", err=True)
            sys.exit(UNREACHABLE)

    for option in reversed(_OPTIONS):
        with_plan = option(with_plan)
    return with_plan


def _plan(options: dict[str, Any]) -> "Plan":
    from chronik.audit.workload import Plan

    if options["idempotent"] and options["acks"] != "all":
        raise click.UsageError("--idempotent needs --acks all")
    for library in ("kafka", "aiokafka"):
        # What they complain about is in the ledger; a terminal shows the verdict.
        logging.getLogger(library).setLevel(logging.CRITICAL)
    run = secrets.randbits(63)
    options["topic"] = options["topic"] or f"chronik-verify-{run:016x}"
    options["ledger"] = options["ledger"] or Path(tempfile.mkdtemp(prefix="chronik-ledger-"))
    return Plan(run=run, **options)


@click.group()
def verify() -> None:
    """Produces to any Kafka cluster, reads it back and judges it.

    Exit code: 0 ok, 1 anomalies, 2 wrong usage or a cluster that does not answer.
    """


@verify.command("large-batch")
@run_options
def large_batch(plan: "Plan", *, report: Path | None, as_json: bool) -> None:
    """As many records as fast as possible, and all of them back."""
    _once(plan, "large batch", report=report, as_json=as_json)


@verify.command("per-partition")
@run_options
def per_partition(plan: "Plan", *, report: Path | None, as_json: bool) -> None:
    """The same, with offsets, gaps, deviation and stalls of each partition."""
    _once(plan, "per partition", report=report, as_json=as_json, detail=True)


def _once(
    plan: "Plan", name: str, *, report: Path | None, as_json: bool, detail: bool = False
) -> None:
    from chronik.audit.verify import verify_once

    with progress_shown(plan, quiet=as_json) as show:
        result = verify_once(plan, show, name)
    finish([result], [], report=report, as_json=as_json, detail=detail)


@verify.command("bootstrap")
@run_options
def bootstrap_command(plan: "Plan", *, report: Path | None, as_json: bool) -> None:
    """One bootstrap server against all of them, side by side."""
    from chronik.audit.verify import verify_bootstrap

    with progress_shown(plan, quiet=as_json) as show:
        results = verify_bootstrap(plan, show)
    finish(results, [], report=report, as_json=as_json)


@verify.command("extended-timeout")
@run_options
def extended_timeout(plan: "Plan", *, report: Path | None, as_json: bool) -> None:
    """Ordinary limits against twice the time and ten times the poll size, with a decision tree."""
    from chronik.audit.verify import verify_extended

    with progress_shown(plan, quiet=as_json) as show:
        results, findings = verify_extended(plan, show)
    finish(results, findings, report=report, as_json=as_json)


@contextmanager
def progress_shown(plan: "Plan", *, quiet: bool) -> "Iterator[Show]":
    """A live line for the producer and one for the readers, on the terminal only."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn())
    with Bars(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:
        produced = bars.add_task("produced", total=plan.messages)
        consumed = bars.add_task("consumed", total=plan.messages)

        def show(progress: "Progress") -> None:
            bars.update(produced, completed=progress.sent)
            bars.update(consumed, completed=min(progress.read.values(), default=0))

        yield show


def finish(
    results: "list[Result]",
    findings: list[str],
    *,
    report: Path | None,
    as_json: bool,
    detail: bool = False,
) -> None:
    """Prints what was found and leaves with the exit code of the verdict."""
    from chronik.audit.report import write_report

    if report:
        sections = {result.name: result.verdict for result in results}
        report.write_text(write_report("chronik verify", sections, findings), encoding="utf-8")
    ok = all(result.verdict.ok for result in results)
    if as_json:
        values = {"ok": ok, "findings": findings, "runs": [run.to_dict() for run in results]}
        click.echo(json.dumps(values, indent=2))
    else:
        show_results(results, findings, detail=detail)
    sys.exit(OK if ok else ANOMALIES)


def show_results(results: "list[Result]", findings: list[str], *, detail: bool) -> None:
    console = Console()
    console.print(_runs(results))
    for result in results:
        if detail or not result.verdict.ok or len(results) == 1:
            show_verdict(result.verdict, result.name, console)
    for finding in findings:
        console.print(finding)
    console.print(f"ledgers: {results[0].plan.ledger}", style="dim", soft_wrap=True)


def _runs(results: "list[Result]") -> Table:
    table = Table(title="runs (p50, p99: send to ack)", padding=(0, 0))
    names = ("run", "sent", "in s", "read", "share", "missing", "p50 ms", "p99 ms", "verdict")
    for name in names:
        table.add_column(name, justify="left" if name in ("run", "verdict") else "right")
    for result in results:
        latency = result.verdict.measures["ack_latency_ms"]
        table.add_row(
            result.name,
            str(result.progress.sent),
            f"{result.progress.produce_s:.2f}",
            str(result.consumed),
            f"{result.share:.1%}",
            str(result.plan.messages - result.consumed),
            f"{latency.get('p50', 0):.1f}",
            f"{latency.get('p99', 0):.1f}",
            "ok" if result.verdict.ok else "anomalies",
        )
    return table


command = verify
