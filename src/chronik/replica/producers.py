"""What a partition remembers of idempotent producers: the last five batches of each (KIP-98).

`check` and `advance` are called in one synchronous step by the partition's owner, so two requests
in flight never see the same state. Entries are immutable: undoing an append that the disk refused
is putting the former entry back.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from chronik.model.errors import ErrorCode
from chronik.model.limits import PRODUCERS_PER_PARTITION_MAX, SEQUENCE_WINDOW_BATCHES
from chronik.wire.records import BatchHeader

SEQUENCE_MAX = 0x7FFFFFFF


class SequencedBatch(NamedTuple):
    """One remembered batch: its sequence numbers and where it went."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class ProducerEntry(NamedTuple):
    """One producer: its epoch and its newest batches, oldest first."""

    producer_id: int
    epoch: int
    batches: tuple[SequencedBatch, ...]
    last_timestamp_ms: int
    refused: bool = False
    """The disk refused what came next: it comes again, and until then nothing else is in order."""

    @property
    def last_sequence(self) -> int:
        """Sequence number of the newest record, -1 before the first."""
        return self.batches[-1].last_sequence if self.batches else -1


class SequenceRefusedError(Exception):
    """The batch does not follow the producer's last one; `code` is what its producer is told."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class ProducerTable:
    """The producers of one partition, by id; bounded, the longest silent one goes first."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries: dict[int, ProducerEntry] = {e.producer_id: e for e in entries}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        """What is known of one producer."""
        return self._entries.get(producer_id)

    def check(self, header: BatchHeader, inherited_end: int = 0) -> SequencedBatch | None:
        """The original of a batch sent again; None for a new one in order; else an error.

        Below `inherited_end` is what a leader before took, who may have got more than this one has.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            # A producer this partition has forgotten, or never met, starts anywhere (KIP-360).
            return None
        if header.producer_epoch < entry.epoch:
            raise SequenceRefusedError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch} here, the batch has "
                f"{header.producer_epoch}: a newer instance of this producer is at work",
            )
        if header.producer_epoch > entry.epoch:
            _require(header.base_sequence == 0, header, entry, inherited_end)
            return None
        original = _find(entry, header)
        if original is None:
            is_ahead = header.base_sequence > entry.last_sequence
            follows = _follows(entry.last_sequence, header.base_sequence)
            _require(follows, header, entry, inherited_end if is_ahead else 0)
        return original

    def advance(self, header: BatchHeader, base_offset: int, now_ms: int) -> ProducerEntry | None:
        """Remembers the batch at `base_offset`; returns the entry before it, for `restore`."""
        former = self._entries.get(header.producer_id)
        batch = SequencedBatch(
            header.base_sequence,
            header.last_sequence,
            base_offset,
            base_offset + header.last_offset_delta,
            header.max_timestamp,
        )
        kept: tuple[SequencedBatch, ...] = ()
        if former is not None:
            if former.epoch == header.producer_epoch:
                kept = former.batches[1 - SEQUENCE_WINDOW_BATCHES :]
            del self._entries[header.producer_id]  # re-inserted last: the dict is in order of use
        elif len(self._entries) >= PRODUCERS_PER_PARTITION_MAX:
            del self._entries[next(iter(self._entries))]
        self._entries[header.producer_id] = ProducerEntry(
            header.producer_id, header.producer_epoch, (*kept, batch), now_ms
        )
        return former

    def restore(self, producer_id: int, former: ProducerEntry | None) -> None:
        """Undoes one `advance`."""
        entry = self._entries.pop(producer_id, None)
        if former is not None:
            self._entries[producer_id] = former._replace(refused=True)
        elif entry is not None and entry.batches and entry.batches[0].base_sequence == 0:
            # Its first batch comes again. Until then the one behind it must not be taken for the
            # first of a forgotten producer: the retry would be out of order for ever.
            self._entries[producer_id] = entry._replace(batches=(), refused=True)

    def expire(self, silent_since_ms: int) -> None:
        """Forgets the producers that sent nothing since then (producer.id.expiration.ms)."""
        for entry in [e for e in self if e.last_timestamp_ms < silent_since_ms]:
            del self._entries[entry.producer_id]


def _find(entry: ProducerEntry, header: BatchHeader) -> SequencedBatch | None:
    wanted = (header.base_sequence, header.last_sequence)
    for batch in reversed(entry.batches):
        if batch[:2] == wanted:
            return batch
    return None


def _follows(last_sequence: int, base_sequence: int) -> bool:
    if last_sequence == SEQUENCE_MAX:
        return base_sequence == 0
    return base_sequence == last_sequence + 1


def _require(in_order: bool, header: BatchHeader, entry: ProducerEntry, inherited_end: int) -> None:
    # Out of order may be true and still the wrong answer: librdkafka takes it for lost records,
    # begins a new epoch, and sends what is in the log already once more (its issue 4953).
    if not in_order and entry.refused:
        raise SequenceRefusedError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"the disk refused what producer {header.producer_id} sent before: send it again first",
        )
    if not in_order and entry.batches and entry.batches[-1].last_offset < inherited_end:
        # It asks the new leader while its last request to the former one is still open.
        raise SequenceRefusedError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"another node led when producer {header.producer_id} sent what comes before: "
            "send that again first",
        )
    if not in_order:
        raise SequenceRefusedError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"out of order sequence number for producer {header.producer_id}: "
            f"{header.base_sequence} (incoming), {entry.last_sequence} (current end)",
        )
