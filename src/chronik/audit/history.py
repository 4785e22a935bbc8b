"""A ledger indexed for judgement: who sent what, who read what where, and in which stretches.

Pure and in memory. The *log* of a key maps each offset to the values that acks, reads and replicas
put there; the *data offsets* are those of committed values, and their rank is the dense index:
control records, aborted data, compaction and retention leave no trace in it.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from chronik.audit.rows import (
    NONE,
    Kind,
    Outcome,
    Partition,
    Row,
    Value,
    partition_of,
    value_of,
    words,
)

Transaction = tuple[str, int]
"""A producer and the number of its transaction."""


@dataclass(slots=True)
class Stretch:
    """What one consumer read of one key between two changes of its place."""

    consumer: str
    partition: Partition
    opened_by: str
    start: int = -1
    records: list[Row] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The lowest offset it asked for."""
        read = min(row.offset for row in self.records)
        return min(self.start, read) if self.start >= 0 else read

    @property
    def last(self) -> int:
        return max(row.offset for row in self.records)


@dataclass(slots=True)
class Log:
    """What is known of one key's log."""

    values: dict[int, dict[Value, Row]] = field(default_factory=lambda: defaultdict(dict))
    """Offset to the values seen there, each with the first row that showed it."""
    read: dict[int, Row] = field(default_factory=dict)
    """Offset to the first record that a consumer was given there."""
    start: int = 0
    end: int | None = None
    """The end offset at the final read, if there was one."""
    end_row: Row | None = None


class History:
    """All rows of a run, indexed. Rows of one process are in the order of its program."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self.by_kind: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            self.by_kind[row.kind].append(row)
        self.settings = {row.process: words(row.detail) for row in self.by_kind[Kind.CLIENT]}
        self.topics = {row.topic: words(row.detail) for row in self.by_kind[Kind.TOPIC]}
        self.sends = {value_of(row): row for row in self.by_kind[Kind.SEND]}
        self.transactions: dict[Transaction, Row] = {
            (row.process, row.transaction): row for row in self.by_kind[Kind.TRANSACTION]
        }
        self.logs: dict[Partition, Log] = defaultdict(Log)
        self.reads: dict[Value, list[Row]] = defaultdict(list)
        self.damaged: list[Row] = []
        self._index_reads()
        self._index_acks()
        self._index_ends()

    def _index_reads(self) -> None:
        for row in self.by_kind[Kind.RECORD] + self.by_kind[Kind.REPLICA]:
            log = self.logs[partition_of(row)]
            if row.kind == Kind.RECORD:
                log.read.setdefault(row.offset, row)
            if self.is_damaged(row):
                self.damaged.append(row)
                continue
            log.values[row.offset].setdefault(value_of(row), row)
            if row.kind == Kind.RECORD:
                self.reads[value_of(row)].append(row)

    def _index_acks(self) -> None:
        for value, send in self.sends.items():
            if send.outcome != Outcome.FAIL and send.offset >= 0:
                self.logs[partition_of(send)].values[send.offset].setdefault(value, send)
        for row in self.damaged:  # what was sent there arrived, if broken: that is no loss
            if row.kind == Kind.RECORD:
                for value in self.logs[partition_of(row)].values[row.offset]:
                    self.reads[value].append(row)

    def _index_ends(self) -> None:
        for row in self.by_kind[Kind.LOG]:
            log = self.logs[partition_of(row)]
            log.start = max(log.start, row.position)
            if row.offset >= 0:
                log.end, log.end_row = row.offset, row

    def is_damaged(self, row: Row) -> bool:
        """Its checksum does not agree, with itself or with what was sent."""
        if row.outcome == Outcome.FAIL:
            return True
        send = self.sends.get(value_of(row))
        if send is None or NONE in (send.checksum, row.checksum):
            return False
        return send.checksum != row.checksum

    def is_idempotent(self, process: str) -> bool:
        return self.settings.get(process, {}).get("idempotent") == "true"

    def is_committed_reader(self, process: str) -> bool:
        return self.settings.get(process, {}).get("isolation") != "read_uncommitted"

    def transaction_of(self, send: Row) -> Transaction | None:
        return (send.process, send.transaction) if send.transaction >= 0 else None

    def is_aborted(self, send: Row) -> bool:
        transaction = self.transaction_of(send)
        row = self.transactions.get(transaction) if transaction else None
        return row is not None and row.outcome == Outcome.FAIL

    def is_committed(self, send: Row) -> bool:
        """Acked and not aborted; what nobody knows counts if some of it was read."""
        if send.outcome == Outcome.FAIL or self.is_aborted(send):
            return False
        transaction = self.transaction_of(send)
        if transaction:
            row = self.transactions.get(transaction)
            if row is None or row.outcome == Outcome.INFO:
                return transaction in self.read_transactions
        return send.outcome == Outcome.OK or value_of(send) in self.reads

    @cached_property
    def holders(self) -> dict[Value, set[str]]:
        """The replicas whose own logs hold a value."""
        found: dict[Value, set[str]] = defaultdict(set)
        for row in self.by_kind[Kind.REPLICA]:
            found[value_of(row)].add(row.process)
        return found

    @cached_property
    def read_transactions(self) -> set[Transaction]:
        """Transactions of which a reader of committed data saw something."""
        seen = set()
        for value, rows in self.reads.items():
            send = self.sends.get(value)
            transaction = self.transaction_of(send) if send else None
            if transaction and any(self.is_committed_reader(row.process) for row in rows):
                seen.add(transaction)
        return seen

    def offset_of(self, value: Value, send: Row) -> int:
        """Where a value is: as acked, else as first read, else -1."""
        if send.offset >= 0:
            return send.offset
        rows = self.reads.get(value)
        return rows[0].offset if rows else -1

    def partition_of_value(self, value: Value, send: Row) -> Partition:
        rows = self.reads.get(value)
        return partition_of(rows[0] if rows and send.partition < 0 else send)

    def is_expired(self, partition: Partition, offset: int) -> bool:
        """Retention or DeleteRecords took it, or compaction had a newer record of its key."""
        if offset < self.logs[partition].start:
            return True
        if "compact" not in self.topics.get(partition.topic, {}).get("cleanup.policy", ""):
            return False
        return any(
            self.newest_of_key.get((partition, row.key), offset) > offset
            for row in self.logs[partition].values.get(offset, {}).values()
        )

    @cached_property
    def newest_of_key(self) -> dict[tuple[Partition, int], int]:
        newest: dict[tuple[Partition, int], int] = {}
        for partition, log in self.logs.items():
            for offset, values in log.values.items():
                for row in values.values():
                    place = (partition, row.key)
                    newest[place] = max(newest.get(place, -1), offset)
        return newest

    @cached_property
    def data_offsets(self) -> dict[Partition, list[int]]:
        """Per key, the sorted offsets of committed values: the rank is the dense index."""
        found: dict[Partition, list[int]] = {}
        for partition, log in self.logs.items():
            kept = [offset for offset, values in log.values.items() if self._holds_data(values)]
            found[partition] = sorted(kept)
        return found

    def _holds_data(self, values: dict[Value, Row]) -> bool:
        sends = [self.sends.get(value) for value in values]
        return any(send is None or self.is_committed(send) for send in sends)

    def index(self, partition: Partition, offset: int) -> int:
        return bisect_left(self.data_offsets[partition], offset)

    def between(self, partition: Partition, low: int, high: int) -> list[int]:
        """The data offsets strictly between two offsets."""
        offsets = self.data_offsets[partition]
        return offsets[bisect_right(offsets, low) : bisect_left(offsets, high)]

    @cached_property
    def stretches(self) -> list[Stretch]:
        """What each consumer read, cut where its place was changed on purpose."""
        return list(self._cut_stretches())

    def _cut_stretches(self) -> Iterator[Stretch]:
        live: dict[tuple[str, Partition], Stretch] = {}
        for row in self.rows:
            place = (row.process, partition_of(row))
            if row.kind in (Kind.ASSIGN, Kind.SEEK, Kind.REVOKE):
                if place in live:
                    yield live.pop(place)
                if row.kind != Kind.REVOKE:
                    opened_by = row.kind if row.kind == Kind.SEEK else row.detail or row.kind
                    live[place] = Stretch(*place, opened_by=opened_by, start=row.position)
            elif row.kind == Kind.RECORD:
                live.setdefault(place, Stretch(*place, opened_by="")).records.append(row)
        yield from live.values()

    @cached_property
    def covered(self) -> dict[Partition, list[tuple[int, int]]]:
        """Per key, the merged offset ranges that readers went through from end to end."""
        ranges: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
        for stretch in self.stretches:
            if stretch.records:
                ranges[stretch.partition].append((stretch.first, stretch.last))
        return {partition: _merged(found) for partition, found in ranges.items()}

    def is_covered(self, partition: Partition, offset: int) -> bool:
        ranges = self.covered.get(partition, [])
        at = bisect_right(ranges, (offset, 1 << 62)) - 1
        return at >= 0 and ranges[at][0] <= offset <= ranges[at][1]


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged
