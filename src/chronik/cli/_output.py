"""What the commands print: tables for people, plain columns for pipes, JSON for programs."""

import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import click

P = ParamSpec("P")
R = TypeVar("R")

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
"""128 + the signal's number: what a shell reports for a program that SIGINT or SIGPIPE ended."""

GAP = 3
"""Between two columns of a table on a terminal."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
INTERRUPT_S_MAX = 2.0
"""A command that was told to end is ended after this time, whatever it waits for."""


def quiet_end(function: Callable[P, R]) -> Callable[P, R]:
    """Ctrl-C and a reader that went away (`| head`) end a command without a word."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, _interrupted)
        try:
            result = function(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt:
            sys.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            _discard_output()
            sys.exit(EXIT_BROKEN_PIPE)
        except OSError as error:
            if error.errno not in _DISK_FULL or error.filename is not None:
                raise
            _discard_output()
            raise click.ClickException(
                f"the output could not be written: {error.strerror}"
            ) from error
        return result

    return wrapped


def _discard_output() -> None:
    """The interpreter flushes stdout once more at its end; let that go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupted(number: int, frame: object) -> None:
    """Ends the command; also where a client library swallows the exception or will not close."""
    backstop = threading.Timer(INTERRUPT_S_MAX, os._exit, (EXIT_INTERRUPTED,))
    backstop.daemon = True
    backstop.start()
    raise KeyboardInterrupt


def print_json(value: Any) -> None:
    """Indented, and with the letters as they are."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def note(text: str) -> None:
    """A line for the person at the terminal; never mixed into the output."""
    click.echo(text, err=True)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numbers: Sequence[str] = (),
    red: Callable[[int], bool] = lambda _: False,
) -> None:
    """The columns in `numbers` are aligned right, the rows that `red` picks are red."""
    if sys.stdout.isatty():
        _print_rich(columns, rows, numbers, red)
    else:
        _print_plain(columns, rows, numbers)


def _print_rich(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    numbers: Sequence[str],
    red: Callable[[int], bool],
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    texts = [[_cell(value) for value in row] for row in rows]
    # Names and numbers stay in one piece: in a narrow terminal lines wrap, and cells do not.
    widths = [
        max([len(column)] + [len(row[i]) for row in texts if column in numbers])
        for i, column in enumerate(columns)
    ]
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["right", "left"] = "right" if column in numbers else "left"
        table.add_column(column, justify=justify, overflow="fold", min_width=width)
    for index, row in enumerate(texts):
        table.add_row(*map(Text, row), style="bold red" if red(index) else None)
    console = Console()
    needed = sum(widths) + GAP * (len(columns) - 1)
    console.print(table, width=max(console.width, needed), crop=False, no_wrap=True)


def _print_plain(
    columns: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[str]
) -> None:
    """Columns two spaces apart, one row per line, whatever the width: for grep, awk and files."""
    cells = [[column.upper() for column in columns]]
    cells += [[_cell(value) or "-" for value in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    right = [column in numbers for column in columns]
    for row in cells:
        padded = [
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(row, widths, right, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and sys.stdout.isatty() else str(value)


def size_text(size: int | None) -> str:
    """1536 -> 1.5 KiB."""
    if size is None:
        return "-"
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{value:.1f} {unit}"


def count_text(count: int, one: str, many: str | None = None) -> str:
    """1 record, 2 records, 3 batches."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {many or one + 's'}"
