"""`chronik simulate`: whole clusters from seeds, with faults, checked after every event."""

import sys
from collections import Counter

import click

from chronik.broker.clock import SystemClock
from chronik.cli._output import count_text, quiet_end
from chronik.sim import raft_world, replica_world
from chronik.sim.raft_bugs import BUGS
from chronik.sim.replica_bugs import REPLICA_BUGS
from chronik.sim.report import Report

BUGS_OF = {"raft": frozenset(BUGS), "partition": frozenset(REPLICA_BUGS)}
SEEDS_PER_LINE = 100


@click.command("simulate")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="First seed."
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="How many seeds."
)
@click.option(
    "--world",
    type=click.Choice(["raft", "partition"]),
    default="raft",
    show_default=True,
    help="The metadata log, or a partition and its replicas.",
)
@click.option("--nodes", type=click.Choice(["3", "5"]), default="3", show_default=True)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=3_000,
    show_default=True,
    help="Events per seed before the faults end.",
)
@click.option(
    "--bug",
    type=click.Choice(sorted(BUGS | REPLICA_BUGS)),
    help="Plant a known mistake, to see it found.",
)
@quiet_end
def command(seed: int, seeds: int, world: str, nodes: str, steps: int, bug: str | None) -> None:
    """Simulate clusters under crashes, partitions and slow disks, and check every event.

    The same seed gives the same run. Ends with status 1 at the first finding, and shows the events
    that led to it and the command that repeats it.
    """
    if bug is not None and bug not in BUGS_OF[world]:
        raise click.UsageError(
            f"--world {world} has these bugs: {', '.join(sorted(BUGS_OF[world]))}"
        )
    run = raft_world.run if world == "raft" else replica_world.run
    reports: list[Report] = []
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    for number in range(seed, seed + seeds):
        report = run(number, int(nodes), steps, (bug,) if bug else ())
        reports.append(report)
        if not report.ok:
            _show_finding(report)
            break
        if len(reports) % SEEDS_PER_LINE == 0:
            _show_progress(reports, seeds, (clock.monotonic_ns() - began_ns) / 1e9)
    _show_summary(reports)
    if not reports[-1].ok:
        sys.exit(1)


def _show_progress(reports: list[Report], seeds: int, seconds: float) -> None:
    """So that who waits for thousands of seeds sees that they pass."""
    acked = sum(report.acked for report in reports)
    last = reports[-1].seed
    click.echo(
        f"{len(reports)}/{seeds} seeds up to {last}: {acked} acknowledged, ok, {seconds:.1f} s"
    )


def _show_finding(report: Report) -> None:
    click.echo(f"seed {report.seed}: {report.finding}")
    click.echo(f"the last {len(report.trace)} events:")
    for line in report.trace:
        click.echo(f"  {line}")
    click.echo(f"repeat it with: {report.command}")


def _show_summary(reports: list[Report]) -> None:
    found = sum(1 for report in reports if not report.ok)
    totals: Counter[str] = Counter()
    for report in reports:
        totals.update(report.counts())
    totals["simulated seconds"] = sum(report.simulated_us for report in reports) // 1_000_000
    numbers = ", ".join(f"{value} {name}" for name, value in totals.items())
    click.echo(f"{count_text(len(reports), 'seed')}, {count_text(found, 'finding')}: {numbers}")
