"""`chronik diagnose`: the cause of a loss, from a broker's logs or from Chronik's own traces."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from chronik.audit.diagnosis import Cause, Diagnosis

EVIDENCE_SHOWN = 8
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_ANY = click.Path(exists=True, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option("--logs", type=_FILE, multiple=True, help="Log files, or notes that quote them.")
@click.option(
    "--traces", type=_DIRECTORY, multiple=True, help="A node's trace directory; one for each node."
)
@click.option(
    "--watermarks", is_flag=True, help="With --traces: how soon followers knew each watermark."
)
@click.option("--json", "as_json", is_flag=True, help="Print the diagnosis as JSON.")
@click.argument("more", metavar="[FILE|DIR]...", nargs=-1, type=_ANY)
def diagnose(
    logs: tuple[Path, ...],
    traces: tuple[Path, ...],
    *,
    watermarks: bool,
    as_json: bool,
    more: tuple[Path, ...],
) -> None:
    """Names the cause and shows the lines, or says that there is not enough evidence.

    \b
    chronik diagnose --logs node1.log node2.log
    chronik diagnose --traces DIR1 DIR2 DIR3
    """
    from chronik.audit.diagnose import diagnose_logs, diagnose_traces

    if bool(logs) == bool(traces):
        raise click.UsageError("give either --logs FILE... or --traces DIR...")
    for path in more:
        if path.is_dir() != bool(traces):
            raise click.UsageError(
                f"{path} is {'a directory' if path.is_dir() else 'no directory'}"
            )
    if watermarks:
        if not traces:
            raise click.UsageError("--watermarks needs --traces, one directory for each node")
        show_spread(trace_folders([*traces, *more]), as_json=as_json)
        return
    if traces:
        found = diagnose_traces(*trace_folders([*traces, *more]))
    else:
        found = diagnose_logs([*logs, *more])
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        show(found)


def trace_folders(given: Sequence[Path]) -> list[Path]:
    """Folders with trace files; a node's data directory is taken for the traces inside it."""
    from chronik.trace.files import trace_files

    folders = [path / "traces" if (path / "traces").is_dir() else path for path in given]
    for folder in folders:
        if not any(trace_files(folder)):
            raise click.UsageError(
                f"{folder} holds no trace files (was the node run with --trace?)"
            )
    return folders


def show_spread(folders: Sequence[Path], *, as_json: bool) -> None:
    """The time from a leader's move to its followers' knowledge of it."""
    from chronik.audit.watermark_spread import spread_of

    found = spread_of(folders)
    if as_json:
        click.echo(json.dumps({"moves": found.moves, "followers": found.rows()}, indent=2))
        return
    click.echo(f"{found.moves} moves of watermarks on their leaders; known on the followers after")
    click.echo("follower      known  unknown   p50 ms   p99 ms   max ms")
    for row in found.rows():
        click.echo(
            f"{row['follower']:<10} {row['known']:>8} {row['unknown']:>8} "
            f"{row['p50_ms']:>8.2f} {row['p99_ms']:>8.2f} {row['max_ms']:>8.2f}"
        )


def show(found: "Diagnosis") -> None:
    click.echo(f"cause: {found.cause.replace('-', ' ')}")
    for title, causes in (
        ("causes", found.causes),
        ("consequences", found.consequences),
        ("what cannot explain it", found.ruled_out),
    ):
        if causes:
            click.echo(f"\n{title}:")
        for cause in causes:
            _show_cause(cause)
    if found.missing and found.cause != "offset-assigned-twice":
        click.echo("\nnotes:")
        for text in found.missing:
            click.echo(f"  {text}")


def _show_cause(cause: "Cause") -> None:
    click.echo(f"  {cause.name} ({cause.confidence}): {cause.statement}")
    for line in cause.evidence[:EVIDENCE_SHOWN]:
        click.echo(f"      {line.file}:{line.line}  {line.text}")


command = diagnose
