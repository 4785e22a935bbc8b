"""Which rows of a ledger a scan is to give: decided for whole batches in numpy."""

from dataclasses import dataclass, field

import numpy as np

from chronik.audit.rows import Kind, Outcome
from chronik.audit_spark.order import Array, Ordered, Segment, distinct

PLACED = (Kind.SEND, Kind.RECORD, Kind.REPLICA)
"""The kinds of which there are as many as messages; all others are few."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Everything by default; else the notes, and what any of the other fields asks for.

    Notes are the rows of the kinds that are few, and the sends that were not plainly acked.
    """

    everything: bool = True
    notes: bool = True
    blocks: dict[tuple[str, int], Array] = field(default_factory=dict)
    """Per key, the numbers of the blocks of its log, sorted."""
    block_size: int = 1
    values: dict[str, Array] = field(default_factory=dict)
    """Per sender, sequences, sorted."""
    sample_step: int = 0
    """Sends and records of every n-th sequence."""

    def mask(self, found: Ordered) -> Array:
        """The rows that are wanted; intents never are."""
        chosen = np.zeros(found.batch.rows, bool)
        for segment in found.segments:
            part = slice(segment.low, segment.high)
            if self.everything or (self.notes and segment.kind not in PLACED):
                chosen[part] = True
            elif segment.kind in PLACED:
                self._choose(found, segment, chosen[part])
        return chosen

    def _choose(self, found: Ordered, segment: Segment, chosen: Array) -> None:
        part = slice(segment.low, segment.high)
        offsets, sequences = found.numbers("offset")[part], found.numbers("sequence")[part]
        if self.notes and segment.kind == Kind.SEND:
            chosen |= (offsets < 0) | ~found.batch.equals("outcome", Outcome.OK)[part]
        if self.sample_step and segment.kind != Kind.REPLICA:
            chosen |= sequences % self.sample_step == 0
        if self.blocks:
            self._choose_blocks(segment.topic, found.numbers("partition")[part], offsets, chosen)
        if self.values:
            self._choose_values(found, segment, sequences, chosen)

    def _choose_blocks(self, topic: str, partitions: Array, offsets: Array, chosen: Array) -> None:
        numbers = offsets // self.block_size
        for partition in distinct(partitions).tolist():
            blocks = self.blocks.get((topic, partition))
            if blocks is not None:
                chosen |= (partitions == partition) & (offsets >= 0) & _contains(blocks, numbers)

    def _choose_values(
        self, found: Ordered, segment: Segment, sequences: Array, chosen: Array
    ) -> None:
        for low, end, sender in found.batch.runs_within("sender", segment.low, segment.high):
            values = self.values.get(
                sender or (segment.process if segment.kind == Kind.SEND else "")
            )
            if values is not None:
                part = slice(low - segment.low, end - segment.low)
                chosen[part] |= _contains(values, sequences[part])


def _contains(ordered: Array, values: Array) -> Array:
    """Which values are in a sorted array."""
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return ordered[at] == values
