"""The fast path of a producer: outcomes in bulk, and intents that are written ahead as ranges."""

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute

from chronik.audit.ledger import (
    BATCH_ROWS_MAX,
    FLUSH_NS_MAX,
    Columns,
    LedgerWriter,
    joined,
    repeated,
)
from chronik.audit.rows import NONE, Kind, Outcome, Row

pc: Any = pyarrow.compute
INTENT_RANGE = 16_384


class _Block:
    """What was known at the beginning of the sends of one intent range."""

    __slots__ = ("_begins", "_checksums", "_keys", "_transactions", "begun", "first", "outstanding")

    def __init__(self, first: int) -> None:
        self.first = first
        self.begun = self.outstanding = 0
        # Each column in pieces: an array that grew with every send would be moved as often.
        self._begins: list[array[int]] = []
        self._checksums: list[array[int]] = []
        self._keys: list[array[int]] = []
        self._transactions: list[array[int]] = []

    def add(
        self, begin_ns: int, checksums: Sequence[int], keys: Sequence[int], transaction: int
    ) -> None:
        count = len(checksums)
        self._begins.append(repeated(begin_ns, count))
        self._checksums.append(array("I", checksums))
        # Sends have keys all or none, and so it is with transactions.
        if keys:
            self._keys.append(array("q", keys))
        if transaction != NONE:
            self._transactions.append(repeated(transaction, count))
        self.begun += count
        self.outstanding += count

    def take(self, sequences: Any) -> Columns:
        """The columns of some of its sends, which have ended now."""
        self.outstanding -= len(sequences)
        index = pc.subtract(sequences, self.first)
        return {name: column.take(index) for name, column in self._columns().items()}

    def take_one(self, sequence: int) -> dict[str, Any]:
        self.outstanding -= 1
        at = sequence - self.first
        return {name: column[at].as_py() for name, column in self._columns().items()}

    def _columns(self) -> Columns:
        columns = {
            "begin_ns": self._begins,
            "checksum": self._checksums,
            "key": self._keys,
            "transaction": self._transactions,
        }
        return {name: joined(pieces) for name, pieces in columns.items() if pieces}


class SendLog:
    """The fast path of a producer: outcomes in bulk, intents as ranges written ahead.

    `begin` before records are handed to the client, `acked`/`ended` when their outcome is known.
    Between them a send costs no Python object but its numbers.
    """

    def __init__(self, ledger: LedgerWriter, topic: str, sequences_max: int = 1 << 62) -> None:
        self._ledger, self._topic, self._limit = ledger, topic, sequences_max
        self._next = 0
        self._blocks: dict[int, _Block] = {}
        self._flushed_ns = ledger.now_ns()
        self._new_columns()

    def begin(
        self,
        first: int,
        checksums: Sequence[int],
        keys: Sequence[int] = (),
        transaction: int = NONE,
    ) -> None:
        """Sends `first`, `first + 1`, ... begin now: at most up to the next `INTENT_RANGE`."""
        block = self._blocks.get(first // INTENT_RANGE) or self._intend(first)
        assert first == block.first + block.begun, "sequences ascend without holes"
        assert block.begun + len(checksums) <= INTENT_RANGE, "a range ends at its boundary"
        block.add(self._ledger.now_ns(), checksums, keys, transaction)
        self._next = first + len(checksums)

    def acked(
        self, sequences: Sequence[int], partitions: Sequence[int], offsets: Sequence[int]
    ) -> None:
        """Acknowledgements that were seen just now (a later time than the true one is safe)."""
        end_ns = self._ledger.now_ns()
        self._sequences.append(array("q", sequences))
        self._partitions.append(array("i", partitions))
        self._offsets.append(array("q", offsets))
        self._ends.append(repeated(end_ns, len(sequences)))
        self._count += len(sequences)
        if self._count >= BATCH_ROWS_MAX or end_ns - self._flushed_ns > FLUSH_NS_MAX:
            self.flush()

    def ended(self, sequence: int, outcome: Outcome, detail: str, partition: int = NONE) -> None:
        """A send without a known offset: it failed, or nobody knows."""
        number = sequence // INTENT_RANGE
        begun = self._blocks[number].take_one(sequence)
        self._forget(number)
        row = Row(
            Kind.SEND,
            end_ns=self._ledger.now_ns(),
            topic=self._topic,
            partition=partition,
            sequence=sequence,
            outcome=outcome,
            detail=detail,
        )
        self._ledger.append(row._replace(**begun))

    def flush(self) -> None:
        self._flushed_ns = self._ledger.now_ns()
        if self._count:
            ended = {
                "sequence": joined(self._sequences),
                "partition": joined(self._partitions),
                "offset": joined(self._offsets),
                "end_ns": joined(self._ends),
            }
            self._new_columns()
            numbers = pc.divide(ended["sequence"], INTENT_RANGE)
            for number in pc.unique(numbers).to_pylist():
                chosen = pc.equal(numbers, number)
                self._write(number, {name: col.filter(chosen) for name, col in ended.items()})
        self._ledger.flush()

    def _write(self, number: int, ended: Columns) -> None:
        """The acknowledged sends of one range, with what was known at their beginning."""
        shared = {"kind": Kind.SEND, "topic": self._topic, "outcome": Outcome.OK}
        begun = self._blocks[number].take(ended["sequence"])
        self._forget(number)
        self._ledger.write(len(ended["sequence"]), shared | ended | begun)

    def close(self) -> None:
        """Says that no later send was begun; without it the rest of the last range is info."""
        self.flush()
        begin_ns = self._ledger.now_ns()
        end = Row(Kind.INTENT, begin_ns=begin_ns, topic=self._topic, sequence=self._next, records=0)
        self._ledger.append(end)
        self._ledger.flush()

    def transaction(self, number: int, begin_ns: int, outcome: Outcome, detail: str = "") -> None:
        """How a transaction ended; one without this row is of unknown end."""
        end_ns = self._ledger.now_ns()
        row = Row(Kind.TRANSACTION, "", begin_ns, end_ns, outcome=outcome, detail=detail)
        self._ledger.append(row._replace(transaction=number))

    def rotate(self, path: Path) -> None:
        """Ends the ledger's file; in the next one the sends that follow are intended anew."""
        self.close()
        self._ledger.rotate(path)
        self._blocks = {
            number: block for number, block in self._blocks.items() if block.outstanding
        }
        if self._next // INTENT_RANGE in self._blocks:  # one of its range has no outcome yet
            self._write_intent(self._next)

    def _intend(self, first: int) -> _Block:
        block = self._blocks[first // INTENT_RANGE] = _Block(first)
        self._write_intent(first)
        return block

    def _write_intent(self, first: int) -> None:
        count = min(INTENT_RANGE - first % INTENT_RANGE, self._limit - first)
        begin_ns = self._ledger.now_ns()
        self._ledger.flush()
        intent = {"kind": Kind.INTENT, "topic": self._topic, "sequence": first, "records": count}
        self._ledger.write(1, intent | {"begin_ns": begin_ns})

    def _forget(self, number: int) -> None:
        block = self._blocks[number]
        complete = block.first % INTENT_RANGE + block.begun == INTENT_RANGE
        if complete and not block.outstanding:
            del self._blocks[number]

    def _new_columns(self) -> None:
        self._sequences: list[array[int]] = []
        self._partitions: list[array[int]] = []
        self._offsets: list[array[int]] = []
        self._ends: list[array[int]] = []
        self._count = 0
