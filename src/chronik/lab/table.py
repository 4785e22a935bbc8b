"""What the lab prints: one line per defect, as the seed notes' tables, or the same as JSON."""

import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from rich.table import Table

_COLUMNS = ("defect", "consumed", "missing", "success", "anomaly", "cause", "named")
_NUMBERS = ("consumed", "missing", "success")


class Line(Protocol):
    """What the table needs of a run."""

    @property
    def title(self) -> str: ...
    @property
    def sent(self) -> int: ...
    @property
    def consumed(self) -> int: ...
    @property
    def missing(self) -> int: ...
    @property
    def anomalies(self) -> list[str]: ...
    @property
    def cause(self) -> str: ...
    @property
    def named(self) -> bool: ...
    def to_dict(self) -> dict[str, object]: ...


def cells(line: Line) -> tuple[str, ...]:
    """One line of the table."""
    share = line.consumed / line.sent if line.sent else 1.0
    return (
        line.title,
        str(line.consumed),
        str(line.missing),
        f"{share:.1%}" if line.missing else "100%",
        ", ".join(line.anomalies),
        line.cause,
        "yes" if line.named else "NO",
    )


def as_table(lines: Iterable[Line]) -> Table:
    table = Table(title="chronik lab: one known defect at a time", title_justify="left")
    for column in _COLUMNS:
        table.add_column(
            column,
            justify="right" if column in _NUMBERS else "left",
            overflow="fold",
            no_wrap=column in _NUMBERS,
        )
    for line in lines:
        table.add_row(*cells(line), style="" if line.named else "bold red")
    return table


def as_json(lines: Sequence[Line]) -> str:
    return json.dumps([line.to_dict() for line in lines], indent=2)


def exit_code(lines: Sequence[Line]) -> int:
    """0 only where the audit named every defect and had nothing to say of a clean run."""
    return 0 if lines and all(line.named for line in lines) else 1
