"""A table at one moment, as SQL sees it, whichever format it has.

The files and the offsets belong to the same snapshot, so that the log can go on where they end.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from chronik.pipeline.places import Access
from chronik.pipeline.sql_text import AsOf, BadQuery
from chronik.pipeline.warehouse import State


@dataclass(frozen=True)
class Stored:
    """What a table consisted of."""

    name: str
    topic: str
    mode: str
    schema: pa.Schema
    files: tuple[str, ...]
    bytes: int
    state: State
    access: Access
    """How the store of the files is reached."""
    registry: str | None = None
    """Where the schemas of an Avro or Protobuf table are, as its maker knew it."""


class StoredTables(Protocol):
    """The tables of one format in a warehouse."""

    def names(self) -> list[str]:
        """Every table, dead letters too."""
        ...

    def topics(self) -> dict[str, str]:
        """Topic to table, dead letters left out; this opens every table."""
        ...

    def at(self, name: str, as_of: AsOf | None) -> Stored | None:
        """The table then, or now; None where it is not a topic's. Raises `BadQuery`."""
        ...

    def holds(self, name: str, batch_id: str) -> bool:
        """Whether the dead letter table has the letters of a batch."""
        ...


def nothing_as_of(name: str, as_of: AsOf) -> BadQuery:
    """A state that the table does not have, or no longer."""
    advice = "chronik.snapshots has those that there are"
    return BadQuery(f"table '{name}' has nothing as of {as_of}: {advice}")
