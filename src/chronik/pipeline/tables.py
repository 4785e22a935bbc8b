"""What ingest needs of a table format: Iceberg (`warehouse`) and Delta (`delta_table`) have it.

A table is the one owner of "commit these files with these offsets, if the table still stands where
they begin". Whatever else a format can do is not ingest's business.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from chronik.pipeline.files import Written
from chronik.pipeline.partitioning import PartitionBy
from chronik.pipeline.places import Access
from chronik.pipeline.warehouse import Ranges, State


class IngestTable(Protocol):
    """One table, as of when it was opened or last committed to."""

    @property
    def name(self) -> str: ...

    @property
    def properties(self) -> Mapping[str, str]:
        """What was given when the table was made: its topic and mode."""
        ...

    @property
    def access(self) -> Access:
        """How the store of its files is reached."""
        ...

    def folders(self, batch_id: str, letters: str) -> tuple[str, str]:
        """Where tasks write the files of a batch, and those for the dead letter table."""
        ...

    def schema(self) -> pa.Schema:
        """The columns, in Arrow's small types."""
        ...

    def files(self) -> list[str]:
        """The data files that the table consists of."""
        ...

    def state(self) -> State:
        """How far the table has come."""
        ...

    def add_columns(self, new: Mapping[str, pa.DataType]) -> None:
        """New columns, all of them nullable; they stay where the commit that needed them fails."""
        ...

    def commit(
        self,
        files: Sequence[Written],
        ranges: Ranges,
        batch_id: str,
        bad_files: Sequence[str] = (),
        counts: Mapping[str, str] | None = None,
    ) -> None:
        """Adds files that hold exactly the records of the ranges, and moves the offsets with them.

        Refused with `OffsetConflict` unless every range begins where the table ends. `bad_files`
        are named in the same commit, so that the dead letter table can be completed after a crash.
        """
        ...

    def add_once(self, files: Sequence[str], batch_id: str) -> None:
        """Adds the files of a batch to a dead letter table, unless they are there."""
        ...


class Tables(Protocol):
    """Where the tables of one format are."""

    def open(
        self,
        name: str,
        schema: pa.Schema,
        properties: Mapping[str, str],
        partition_by: Sequence[tuple[str, PartitionBy]] = (),
    ) -> IngestTable:
        """The table; made if it does not exist."""
        ...

    def existing(self, topic: str, suffix: str = "") -> IngestTable | None:
        """The table of a topic, or with a suffix its dead letters; None where there is none."""
        ...
