"""`chronik verify`: produce to any Kafka cluster, read it back, and judge what happened."""

import functools
import json
import logging
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from chronik.cli.audit import show_verdict

if TYPE_CHECKING:
    from chronik.audit.rounds import Judged
    from chronik.audit.verify import Result
    from chronik.audit.workload import Plan, Progress

    Show = Callable[[Progress], None]

OK, ANOMALIES, UNREACHABLE = 0, 1, 2
CLIENTS = ("confluent", "kafka-python", "aiokafka")

_OPTIONS = (
    click.option(
        "--bootstrap",
        "-b",
        envvar="CHRONIK_BOOTSTRAP",
        show_envvar=True,
        required=True,
        metavar="HOST:PORT[,...]",
        help="Bootstrap servers.",
    ),
    click.option("--client", type=click.Choice(CLIENTS), default="confluent", show_default=True),
    click.option("--messages", type=click.IntRange(1), default=5_000, show_default=True),
    click.option(
        "--rate", type=click.FloatRange(0), default=0.0, help="Per second; 0 is no limit."
    ),
    click.option("--acks", type=click.Choice(("0", "1", "all")), default="all", show_default=True),
    click.option("--idempotent", is_flag=True, help="An idempotent producer."),
    click.option(
        "--transactions",
        type=click.IntRange(0),
        is_flag=False,
        flag_value=100,
        default=0,
        metavar="[RECORDS]",
        help="Send in transactions of so many records (100); every fourth is aborted.",
    ),
    click.option("--size", type=click.IntRange(32), default=100, show_default=True, help="Bytes."),
    click.option("--keys", type=click.IntRange(0), default=0, help="Different keys; 0 is no key."),
    click.option("--partitions", type=click.IntRange(1), default=3, show_default=True),
    click.option("--replication", type=click.IntRange(1), default=1, show_default=True),
    click.option("--group/--assign", default=False, help="Read as a group, or assigned (default)."),
    click.option(
        "--consumers",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Members of the group, or readers of everything.",
    ),
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
        from chronik.cli._client import require_reachable

        own = {name: options.pop(name) for name in list(options) if name in _SOAK_OPTIONS}
        plan = _plan(options)
        try:
            require_reachable(plan.bootstrap)  # a client would try for long, and say less
            command(plan, report=report, as_json=as_json, **own)
        except (ClientError, click.ClickException) as error:
            click.echo(f"chronik verify: {error}", err=True)
            sys.exit(UNREACHABLE)

    for option in reversed(_OPTIONS):
        with_plan = option(with_plan)
    return with_plan


def _plan(options: dict[str, Any]) -> "Plan":
    from chronik.audit.workload import Plan

    for exact in ("idempotent", "transactions"):
        if options[exact] and options["acks"] != "all":
            raise click.UsageError(f"--{exact} needs --acks all")
    if options["transactions"] and options["client"] != "confluent":
        raise click.UsageError("--transactions needs --client confluent")
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


_SOAK_OPTIONS = ("duration", "round_s", "fault_command", "fault_every_s", "keep")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def _duration_s(context: click.Context, parameter: click.Parameter, text: str) -> float:
    """Seconds, or a number with a unit: 90, 90s, 15m, 2h, 1d."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS_S else (text, "s")
    try:
        seconds = float(number) * _UNITS_S[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise click.BadParameter(f"{text!r} is no duration: 90, 90s, 15m, 2h or 1d", context)
    return seconds


@verify.command("soak")
@click.option("--duration", default="10m", show_default=True, callback=_duration_s)
@click.option("--round", "round_s", default="30s", show_default=True, callback=_duration_s)
@click.option("--fault-command", default="", help="A shell command that harms the cluster.")
@click.option("--fault-every", "fault_every_s", default="60s", callback=_duration_s)
@click.option("--keep", type=click.IntRange(0), default=0, help="Clean rounds to keep; 0 is all.")
@run_options
def soak(plan: "Plan", *, report: Path | None, as_json: bool, **options: Any) -> None:
    """A long run at a steady rate, judged round by round while it goes, in bounded memory.

    --messages does not count here: rate and duration say how many there are.
    """
    from chronik.audit.soak import Soak, run_soak

    duration_s = options.pop("duration")
    asked = Soak(plan, duration_s=duration_s, **options)
    with soak_shown(duration_s, quiet=as_json) as (show, told):
        result = run_soak(asked, show, told)
    finish([result], [], report=report, as_json=as_json)


@contextmanager
def soak_shown(
    duration_s: float, *, quiet: bool
) -> "Iterator[tuple[Show, Callable[[Judged], None]]]":
    """A live line, and one line for each round that was judged."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, quiet=quiet)
    began = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        line = bars.add_task("soak", total=duration_s)

        def show(progress: "Progress") -> None:
            passed = time.perf_counter() - began
            read = sum(progress.read.values())
            said = f"{progress.sent:,} sent, {read:,} read"
            bars.update(line, completed=min(passed, duration_s), description=said)

        def told(judged: "Judged") -> None:
            console.print(round_line(judged), highlight=False)

        yield show, told


def round_line(judged: "Judged") -> str:
    measures = judged.verdict.measures
    sends = ", ".join(f"{count:,} {outcome}" for outcome, count in measures["sends"].items())
    found = ", ".join(f"{one.name} {one.count}" for one in judged.verdict.anomalies)
    seconds = (judged.round.end_ns - judged.round.begin_ns) / 1e9
    p99 = measures["ack_latency_ms"].get("p99", 0.0)
    said = f"round {judged.round.number}: {sends}; {measures['values_read']:,} read"
    return f"{said} in {seconds:.1f} s, p99 {p99:.1f} ms: {found or 'ok'}"


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
            counts = progress.read.values()
            read = sum(counts) if plan.group else min(counts, default=0)
            bars.update(consumed, completed=read)

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
    from chronik.audit.verify import add_plots

    if report:
        for result in results:
            add_plots(result)
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
        if result.plan.transactions:
            ended = result.progress
            console.print(f"transactions: {ended.committed} committed, {ended.aborted} aborted")
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
            str(result.expected - result.consumed),
            f"{latency.get('p50', 0):.1f}",
            f"{latency.get('p99', 0):.1f}",
            "ok" if result.verdict.ok else "anomalies",
        )
    return table


command = verify
