"""The fast path of a consumer: records of many polls as columns, in order with its other rows."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from chronik.audit.ledger import BATCH_ROWS_MAX, FLUSH_NS_MAX, LedgerWriter
from chronik.audit.payload import read_payload
from chronik.audit.rows import NONE, Kind, Outcome, Row

_PLACE = ("end_ns", "poll", "partition", "offset", "epoch")
_COLUMNS = (*_PLACE, "sender", "sequence", "checksum", "key", "outcome")


class Polled(NamedTuple):
    """One record as a client gave it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    epoch: int = NONE


def sender_name(run: int, sender: int, own_run: int) -> str:
    """Values of other runs keep their run in the name: nobody of this run sent them."""
    return f"p{sender}" if run == own_run else f"{run:016x}/p{sender}"


class RecordLog:
    """What one consumer was given of one topic."""

    def __init__(self, ledger: LedgerWriter, topic: str, run: int) -> None:
        self._ledger, self._topic, self._run = ledger, topic, run
        self._flushed_ns = ledger.now_ns()
        self._rows: list[tuple[Any, ...]] = []

    def records(self, poll: int, polled: Iterable[Polled]) -> None:
        end_ns = self._ledger.now_ns()
        for record in polled:
            payload = read_payload(record.value, record.key)
            place = (end_ns, poll, record.partition, record.offset, record.epoch)
            if payload is None:
                self._rows.append((*place, "", NONE, NONE, NONE, Outcome.FAIL))
                continue
            sender = sender_name(payload.run, payload.sender, self._run)
            outcome = Outcome.OK if payload.intact else Outcome.FAIL
            key = key_number(record.key)
            self._rows.append((*place, sender, payload.sequence, payload.checksum, key, outcome))
        if len(self._rows) >= BATCH_ROWS_MAX or end_ns - self._flushed_ns > FLUSH_NS_MAX:
            self.flush()

    def append(self, row: Row) -> None:
        """A row of another kind, after the records so far."""
        self._write()
        self._ledger.append(row._replace(topic=row.topic or self._topic))

    def flush(self) -> None:
        self._flushed_ns = self._ledger.now_ns()
        self._write()
        self._ledger.flush()

    def _write(self) -> None:
        if not self._rows:
            return
        self._ledger.flush()
        rows, self._rows = self._rows, []
        columns: dict[str, Any] = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
        shared = {"kind": Kind.RECORD, "topic": self._topic}
        self._ledger.write(len(rows), shared | columns)


def key_number(key: bytes | None) -> int:
    """The workload's keys are numbers in text; others have none."""
    return int(key) if key and key.isdigit() else NONE
