"""The rows of the kinds that are few, and what the screening of blocks needs of them."""

from functools import cached_property
from typing import Any

import pyarrow as pa

from chronik.audit.history import History
from chronik.audit.rows import Kind, Partition, Row
from chronik.audit_spark.blocks import numbers

Line = int
Place = tuple[str, Partition, int]
"""A consumer, a key, and the number of the stretch."""


def rows_of(table: pa.Table) -> list[Row]:
    """Events as rows, in the order of their lines."""
    ordered = table.sort_by("line")
    columns: list[Any] = [ordered.column(name).to_pylist() for name in Row._fields]
    return [Row(*values) for values in zip(*columns, strict=True)]


class Notes:
    """Everything but plain acks and reads: settings, moves, polls, ends, refused sends."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.sort_by("line")
        self.rows = rows_of(table)

    @cached_property
    def history(self) -> History:
        return History(self.rows)

    @cached_property
    def clocks(self) -> dict[str, str]:
        """Whose clock measured the times of a process."""
        settings = self.history.settings.items()
        return {process: told.get("clock", "") for process, told in settings}

    @cached_property
    def asked(self) -> dict[Place, int]:
        """The position that a stretch was opened at."""
        stretches = numbers(self.table, "stretch").tolist()
        return {
            (row.process, Partition(row.topic, row.partition), stretch): row.position
            for row, stretch in zip(self.rows, stretches, strict=True)
            if row.kind in (Kind.ASSIGN, Kind.SEEK) and row.position >= 0
        }
