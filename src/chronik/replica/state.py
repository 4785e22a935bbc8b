"""The state of one partition replica: where the log ends, what of it is durable, what is committed.

    log start <= high watermark <= durable end <= log end

`append` deduplicates, takes offsets, patches them into the batch and moves the log end in one call
without a pause. The one high watermark lives here and moves only up: there is no second copy.
"""

from typing import NamedTuple

from chronik.replica.producers import ProducerEntry, ProducerTable
from chronik.wire.records import BatchHeader, patch


class Appended(NamedTuple):
    """A batch with its place in the log, yet to be written; `former` undoes its producer entry."""

    buffer: memoryview
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    size: int
    producer_id: int
    former: ProducerEntry | None


class Duplicate(NamedTuple):
    """A batch that is in the log already, at these offsets."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


class ReplicaState:
    """Offsets, watermark and producers of one replica; only its owner calls it."""

    __slots__ = (
        "durable_end",
        "high_watermark",
        "leader_epoch",
        "log_end",
        "log_start",
        "producers",
    )

    def __init__(
        self,
        leader_epoch: int,
        log_start: int,
        log_end: int,
        producers: ProducerTable | None = None,
    ) -> None:
        assert 0 <= log_start <= log_end
        self.leader_epoch = leader_epoch
        self.log_start = log_start
        self.log_end = log_end
        self.durable_end = log_end
        self.high_watermark = log_end
        self.producers = producers if producers is not None else ProducerTable()

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended | Duplicate:
        """Gives a validated batch its offsets, or finds that it has them already."""
        former: ProducerEntry | None = None
        base_offset = self.log_end
        if header.producer_id >= 0:
            original = self.producers.check(header)
            if original is not None:
                return Duplicate(original.base_offset, original.last_offset, original.timestamp_ms)
            former = self.producers.advance(header, base_offset, now_ms)
        patch(batch, base_offset, self.leader_epoch)
        last_offset = base_offset + header.last_offset_delta
        self.log_end = last_offset + 1
        return Appended(
            batch,
            base_offset,
            last_offset,
            header.max_timestamp,
            self.leader_epoch,
            header.size,
            header.producer_id,
            former,
        )

    def made_durable(self, end_offset: int) -> bool:
        """What lies below `end_offset` survives a crash; True when the watermark moved."""
        assert end_offset <= self.log_end, "durable beyond what was appended"
        self.durable_end = max(self.durable_end, end_offset)
        return self._advance_watermark(self.durable_end)

    def undo(self, refused: list[Appended]) -> None:
        """Takes back appends that the disk refused: the newest ones, none of them durable."""
        for batch in reversed(refused):
            assert batch.last_offset + 1 == self.log_end, "only the newest append can be undone"
            assert batch.base_offset >= self.durable_end, "a durable append cannot be undone"
            self.log_end = batch.base_offset
            if batch.producer_id >= 0:
                self.producers.restore(batch.producer_id, batch.former)

    def advance_start(self, offset: int) -> None:
        """Nothing below `offset` is served any more; it only moves up, never past the watermark."""
        assert offset <= self.high_watermark, "log start beyond the high watermark"
        self.log_start = max(self.log_start, offset)

    def _advance_watermark(self, candidate: int) -> bool:
        if candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True
