"""`chronik lab`: known defects, switched on one at a time; the audit must name each."""

import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from chronik.lab.catalogue import Defect
    from chronik.lab.run import Outcome

ALL = "all"
FAILED = 2


@click.group()
def lab() -> None:
    """The auditor's own test: clusters with a known defect each, on this machine."""


@lab.command("list")
def list_command() -> None:
    """The defects, and what the audit must say of each."""
    from rich.console import Console
    from rich.table import Table

    from chronik.lab.catalogue import BY_NAME

    table = Table()
    for column in ("name", "defect", "nodes", "anomaly", "cause"):
        table.add_column(column, overflow="fold")
    for one in BY_NAME.values():
        table.add_row(one.name, one.title, str(one.nodes), one.anomaly, one.cause)
    Console().print(table)


@lab.command("run")
@click.argument("names", metavar="DEFECT...|all", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print the results as a JSON list.")
@click.option("--control", is_flag=True, help="The same runs and faults with no defect: all clean.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep data, ledgers and traces of each run in this folder.",
)
def run(names: tuple[str, ...], *, as_json: bool, control: bool, keep: Path | None) -> None:
    """Runs a cluster with the defect, audits it, and tells what the audit said.

    Exit code: 0 if every defect was named and the clean run was clean, 1 if not, 2 if a run
    could not be done.
    """
    from rich.console import Console

    from chronik.lab import table

    chosen = _chosen(names)
    for defect in chosen:
        if keep is not None and (keep / defect.name).exists():
            raise click.UsageError(f"--keep {keep}: there is a run of {defect.name} already")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    outcomes = _run(chosen, control=control, keep=keep)
    if as_json:
        click.echo(table.as_json(outcomes))
    else:
        console = Console()
        console.print(table.as_table(outcomes))
        for outcome in outcomes:
            if not outcome.named:
                _explain(outcome)
    sys.exit(table.exit_code(outcomes))


def _chosen(names: tuple[str, ...]) -> "list[Defect]":
    from chronik.lab.catalogue import BY_NAME

    if names == (ALL,):
        return list(BY_NAME.values())
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise click.UsageError(f"no defect {', '.join(unknown)}: see `chronik lab list`")
    return [BY_NAME[name] for name in names]


def _run(chosen: "list[Defect]", *, control: bool, keep: Path | None) -> "list[Outcome]":
    from rich.console import Console

    from chronik.audit.clients import ClientError
    from chronik.lab.cluster import LabError
    from chronik.lab.run import run_defect

    outcomes = []
    with ExitStack() as stack:
        made = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chronik-lab-")))
        status = stack.enter_context(Console(stderr=True).status("chronik lab"))
        for number, defect in enumerate(chosen, 1):
            status.update(f"{number} of {len(chosen)}: {defect.title} ...")
            try:
                outcomes.append(run_defect(defect, made / defect.name, installed=not control))
            except (LabError, ClientError) as error:
                click.echo(f"chronik lab: {defect.name}: {error}", err=True)
                sys.exit(FAILED)
    return outcomes


def _explain(outcome: "Outcome") -> None:
    wanted = outcome.defect
    if outcome.installed and wanted.cause:
        click.echo(f"{wanted.name}: expected {wanted.anomaly} by {wanted.cause}; the audit said:")
    else:
        click.echo(f"{wanted.name}: expected a clean run; the audit said:")
    for anomaly in outcome.verdict.anomalies:
        example = anomaly.examples[0].statement if anomaly.examples else ""
        click.echo(f"  {anomaly.level} {anomaly.name} {anomaly.count}: {example}")
    for cause in outcome.diagnosis.causes:
        click.echo(f"  {cause.name} ({cause.confidence}): {cause.statement}")


command = lab
