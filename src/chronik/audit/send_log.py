"""The fast path of a producer: outcomes in bulk, and intents that are written ahead as ranges."""

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute

from chronik.audit.ledger import BATCH_ROWS_MAX, FLUSH_NS_MAX, Columns, LedgerWriter, view
from chronik.audit.rows import NONE, Kind, Outcome, Row

pc: Any = pyarrow.compute
INTENT_RANGE = 16_384


class _Block:
    """What was known at the beginning of the sends of one intent range."""

    __slots__ = ("begins", "checksums", "first", "keys", "outstanding", "transactions")

    def __init__(self, first: int) -> None:
        self.first = first
        self.begins, self.checksums, self.keys = array("q"), array("q"), array("q")
        self.transactions = array("q")
        self.outstanding = 0

    def add(
        self, begin_ns: int, checksums: Sequence[int], keys: Sequence[int], transaction: int
    ) -> None:
        count = len(checksums)
        self.begins += array("q", (begin_ns,)) * count
        self.checksums += array("q", checksums)
        if keys:
            self.keys += array("q", keys)
        if transaction != NONE:
            self.transactions += array("q", (transaction,)) * count
        self.outstanding += count

    def take(self, sequences: Any) -> Columns:
        """The columns of some of its sends, which have ended now."""
        self.outstanding -= len(sequences)
        index = pc.subtract(sequences, self.first)
        columns = {
            "begin_ns": self.begins,
            "checksum": self.checksums,
            "key": self.keys,
            "transaction": self.transactions,
        }
        # Sends have keys all or none, and so it is with transactions.
        known = {name: values for name, values in columns.items() if values}
        return {name: view(values).take(index) for name, values in known.items()}

    def take_one(self, sequence: int) -> dict[str, Any]:
        self.outstanding -= 1
        at = sequence - self.first
        return {
            "begin_ns": self.begins[at],
            "checksum": self.checksums[at],
            "key": self.keys[at] if self.keys else NONE,
            "transaction": self.transactions[at] if self.transactions else NONE,
        }


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
        assert first == block.first + len(block.begins), "sequences ascend without holes"
        assert len(block.begins) + len(checksums) <= INTENT_RANGE, "a range ends at its boundary"
        block.add(self._ledger.now_ns(), checksums, keys, transaction)
        self._next = first + len(checksums)

    def acked(
        self, sequences: Sequence[int], partitions: Sequence[int], offsets: Sequence[int]
    ) -> None:
        """Acknowledgements that were seen just now (a later time than the true one is safe)."""
        end_ns = self._ledger.now_ns()
        self._sequences.extend(sequences)
        self._partitions.extend(partitions)
        self._offsets.extend(offsets)
        self._ends += array("q", (end_ns,)) * len(sequences)
        if len(self._ends) >= BATCH_ROWS_MAX or end_ns - self._flushed_ns > FLUSH_NS_MAX:
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
        sequences = view(self._sequences)
        shared = {"kind": Kind.SEND, "topic": self._topic, "outcome": Outcome.OK}
        ended = {
            "sequence": sequences,
            "partition": view(self._partitions),
            "offset": view(self._offsets),
            "end_ns": view(self._ends),
        }
        numbers = pc.divide(sequences, INTENT_RANGE)
        for number in pc.unique(numbers).to_pylist():
            chosen = pc.equal(numbers, number)
            columns = {name: column.filter(chosen) for name, column in ended.items()}
            begun = self._blocks[number].take(columns["sequence"])
            self._forget(number)
            self._ledger.write(len(columns["sequence"]), shared | columns | begun)
        self._new_columns()
        self._ledger.flush()

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
        self._ledger.append(
            Row(Kind.INTENT, begin_ns=begin_ns, topic=self._topic, sequence=first, records=count)
        )
        self._ledger.flush()

    def _forget(self, number: int) -> None:
        block = self._blocks[number]
        complete = block.first % INTENT_RANGE + len(block.begins) == INTENT_RANGE
        if complete and not block.outstanding:
            del self._blocks[number]

    def _new_columns(self) -> None:
        self._sequences, self._partitions = array("q"), array("q")
        self._offsets, self._ends = array("q"), array("q")
