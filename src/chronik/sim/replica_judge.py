"""What must hold between the replicas of a partition after every event, and what clients were told.

The judge keeps its own books of what was committed where, and reads the logs to compare.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from chronik.broker.partition import Partition
from chronik.sim.raft_invariants import InvariantViolated
from chronik.wire.records import read_header, scan

READ_BYTES = 1 << 20


class Replica(Protocol):
    """What the judge looks at."""

    id: int
    life: int
    synced_end: int
    """How far its disk has the log, also while it is off."""
    partition: Partition | None


def entries(partition: Partition, start: int, end: int) -> dict[int, bytes]:
    """The batches of a log by their offset; each holds one record."""
    found: dict[int, bytes] = {}
    while start < end:
        read = partition.log.read(start, READ_BYTES, end, at_least_one_batch=True)
        data = memoryview(b"".join(read.slices))
        for position, header in scan(data):
            found[header.base_offset] = bytes(data[position : position + header.size])
            start = header.next_offset
        if not data:
            break
    return found


@dataclass(slots=True)
class ReplicaJudge:
    """The books."""

    committed: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    """By offset: the batch, and the leader epoch in which it was seen committed."""
    acked: dict[int, bytes] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    shown: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By leader epoch and offset: the batch, committed or not, that some log has or had there."""
    _looked: dict[tuple[int, int], int] = field(default_factory=dict)
    _watermarks: dict[tuple[int, int], int] = field(default_factory=dict)
    """By node and life."""

    def check(self, replica: Replica, isr: Iterable[Replica]) -> None:
        """One replica that has just moved; `isr` are those that the controller has in sync."""
        partition = replica.partition
        if partition is None:
            return
        state = partition.state
        if state.is_leader:
            self._check_leader(replica, partition)
        self._check_matching(replica, partition)
        key = (replica.id, replica.life)
        before = self._watermarks.get(key, 0)
        if state.high_watermark < before:
            raise InvariantViolated(
                f"the watermark of {replica.id} fell from {before} to {state.high_watermark}"
            )
        if state.high_watermark > before:
            self._watermarks[key] = state.high_watermark
            self._check_committed(replica, partition, before)
            if state.is_leader:
                self._check_isr(replica, state.high_watermark, isr)

    def _check_matching(self, replica: Replica, partition: Partition) -> None:
        """An epoch and an offset name one batch, wherever it is (Raft's log matching)."""
        key, end = (replica.id, replica.life), partition.log.end_offset
        start = min(self._looked.get(key, 0), end)
        self._looked[key] = end
        for offset, batch in entries(partition, start, end).items():
            epoch = read_header(batch).leader_epoch
            if self.shown.setdefault((epoch, offset), batch) != batch:
                raise InvariantViolated(
                    f"{replica.id} has another record at {offset} than epoch {epoch} had there"
                )

    def _check_leader(self, replica: Replica, partition: Partition) -> None:
        epoch = partition.state.leader_epoch
        if epoch in self.leaders:
            if self.leaders[epoch] != replica.id:
                raise InvariantViolated(
                    f"epoch {epoch} is led by {self.leaders[epoch]} and {replica.id}"
                )
            return
        self.leaders[epoch] = replica.id
        older = [one for one, (_, when) in self.committed.items() if when < epoch]
        if not older:
            return
        found = entries(partition, 0, max(older) + 1)
        lost = [one for one in older if found.get(one) != self.committed[one][0]]
        if lost:
            raise InvariantViolated(
                f"{replica.id} leads epoch {epoch} without {len(lost)} committed records, "
                f"the first at {min(lost)}"
            )

    def _check_committed(self, replica: Replica, partition: Partition, start: int) -> None:
        state = partition.state
        for offset, batch in entries(partition, start, state.high_watermark).items():
            known, _ = self.committed.setdefault(offset, (batch, state.leader_epoch))
            if known != batch:
                raise InvariantViolated(
                    f"{replica.id} has another record at {offset} than was committed there"
                )

    def _check_isr(self, leader: Replica, watermark: int, isr: Iterable[Replica]) -> None:
        for one in isr:
            if one.synced_end < watermark:
                raise InvariantViolated(
                    f"the watermark of {leader.id} is {watermark}, but {one.id}, in the ISR, has "
                    f"only {one.synced_end} on its disk"
                )

    def acknowledged(self, offset: int, value: bytes) -> None:
        """A client was told that its record is stored here."""
        if offset in self.acked:
            raise InvariantViolated(f"two records were acknowledged at {offset}")
        self.acked[offset] = value

    def check_nothing_lost(self, replicas: Iterable[Replica]) -> None:
        """At the end: all logs alike, and every acknowledged record in its place."""
        logs = [
            entries(one.partition, 0, one.partition.state.high_watermark)
            for one in replicas
            if one.partition is not None
        ]
        if any(log != logs[0] for log in logs):
            raise InvariantViolated("the logs differ although all replicas are in sync")
        lost = [o for o, value in self.acked.items() if value not in logs[0].get(o, b"")]
        if lost:
            raise InvariantViolated(f"{len(lost)} acknowledged records are lost: {lost[:3]}")
