"""Intents of the ledgers of a process, and the sends among them whose outcome was not written."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from chronik.audit.ledger import SCHEMA
from chronik.audit.rows import NONE, Kind, Outcome, Row

Array = Any
_FIRST_SIZE = 1 << 16


class Intents:
    """One bit per sequence says that its outcome is known, in whichever file."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._waiting: list[tuple[Row, int]] = []
        self._ended: dict[str, Array] = {}

    def begun(self, batch: Any, low: int, high: int) -> None:
        names = Row._fields
        columns = [batch.column(name)[low:high].to_pylist() for name in names]
        self._rows.extend(map(Row._make, zip(*columns, strict=True)))

    def ended(self, process: str, sequences: Array) -> None:
        """Only sequences that were announced matter; a ledger without intents keeps nothing."""
        if not self._rows and not self._waiting:
            return
        known = self._ended.get(process)
        highest = int(sequences.max(initial=0))
        if known is None or highest >= len(known):
            size = max(_FIRST_SIZE, 2 * (highest + 1))
            grown = np.zeros(size, bool)
            if known is not None:
                grown[: len(known)] = known
            known = self._ended[process] = grown
        known[sequences[sequences >= 0]] = True

    def end_file(self) -> None:
        """What a file announced; the outcome may be in the next one, if it was rotated."""
        intents, self._rows = self._rows, []
        ends = {intent.process: intent.sequence for intent in intents if intent.records == 0}
        for intent in intents:
            last = intent.sequence + intent.records
            stop = min(last, ends.get(intent.process, last))
            if len(self._missing(intent.process, intent.sequence, stop)):
                self._waiting.append((intent, stop))

    def unresolved(self) -> Iterator[Any]:
        """Each send that was announced and has no outcome, as a send of unknown end."""
        waiting, self._waiting = self._waiting, []
        for intent, stop in waiting:
            missing = self._missing(intent.process, intent.sequence, stop)
            if len(missing):
                yield _info_sends(intent, missing)

    def _missing(self, process: str, first: int, stop: int) -> Array:
        known = np.zeros(max(0, stop - first), bool)
        found = self._ended.get(process, known[:0])[first:stop]
        known[: len(found)] = found
        return np.flatnonzero(~known) + first


def _info_sends(intent: Row, sequences: Array) -> Any:
    row = intent._replace(kind=Kind.SEND, outcome=Outcome.INFO, detail="intent", records=NONE)
    columns = {
        name: pa.repeat(pa.scalar(value, SCHEMA.field(name).type), len(sequences))
        for name, value in row._asdict().items()
    }
    columns["sequence"] = pa.array(sequences, pa.int64())
    return pa.table(columns, schema=SCHEMA)
