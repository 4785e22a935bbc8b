"""Defects of the way in: offsets, sequences and answers of Produce."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from chronik.broker import partitions
from chronik.broker.partition import Partition
from chronik.handlers import produce
from chronik.handlers.produce_results import Result
from chronik.lab.replacing import replace
from chronik.model.errors import ErrorCode
from chronik.replica.producers import ProducerTable
from chronik.replica.state import Appended, Duplicate, ReplicaState
from chronik.storage.write import Write
from chronik.wire.records import BatchHeader

AWAITS_S = (0.001, 0.001, 0.001, 0.001, 0.03)
"""How long the produce path awaits between reading and storing; now and then something is slow."""
HELD_BACK_S = 0.05
HELD_BACK_EVERY = 4


class ShadowedPartition(Partition):
    """A batch whose offsets are taken already is shadowed by the batch that has them.

    The product's log asserts that offsets grow; a log without that check loses one of the two.
    """

    __slots__ = ()

    def begin_write(self, now_ms: int) -> Write:
        kept, end = [], self.log.end_offset
        for batch in self._pending:
            if batch.base_offset >= end:
                kept.append(batch)
                end = batch.last_offset + 1
        write = self.log.prepare(kept, now_ms)
        # All of them count as written, the furthest last.
        self._writing = sorted(self._pending, key=lambda batch: batch.last_offset)
        self._pending = []
        return write


class RacingState(ReplicaState):
    """The next offset is a number of its own, read and stored by whoever appends."""

    __slots__ = ("next_offset",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.next_offset = self.log_end


def offset_race() -> None:
    """Reads next_offset, awaits, then stores next_offset + n: two requests get one offset."""
    replace(partitions, "Partition", ShadowedPartition)
    replace(partitions, "ReplicaState", RacingState)
    append = produce._append
    awaits_s = itertools.cycle(AWAITS_S)

    def racing(answer: Any, wanted: Any, now_ms: int, *, waited: bool = False) -> None:
        broker = answer.broker
        found, _ = broker.partitions.find(wanted.topic, wanted.topic_id, wanted.index)
        if found is None or not found.state.is_leader:
            append(answer, wanted, now_ms, waited=waited)
            return
        next_offset = found.state.next_offset
        answer.hold()
        broker.spawn(later(answer, wanted, now_ms, found.state, next_offset))

    async def later(
        answer: Any, wanted: Any, now_ms: int, state: RacingState, next_offset: int
    ) -> None:
        await asyncio.sleep(next(awaits_s))
        log_end, state.log_end = state.log_end, next_offset
        append(answer, wanted, now_ms)
        state.next_offset = state.log_end
        state.log_end = max(log_end, state.log_end)
        answer.settle()

    replace(produce, "_append", racing)


class TwicePartition(ShadowedPartition):
    """Its state is created twice (get, await, insert): the first append goes to the lost one."""

    __slots__ = ("_lost",)

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended | Duplicate:
        if hasattr(self, "_lost"):
            return super().append(batch, header, now_ms)
        kept = self.state
        self._lost = self.state = TwiceState(kept.leader_epoch, kept.log_start, kept.log_end)
        try:
            return super().append(batch, header, now_ms)
        finally:
            self.state = kept


class TwiceState(ReplicaState):
    """Knows of no append that went to its twin."""

    __slots__ = ()

    def made_durable(self, end_offset: int) -> bool:
        return super().made_durable(min(end_offset, self.log_end))


def double_partition_state() -> None:
    """Two states of one partition exist for a moment; both begin at the same offset."""
    replace(partitions, "Partition", TwicePartition)
    replace(partitions, "ReplicaState", TwiceState)


def error_as_success() -> None:
    """Any error of a partition is answered as success, with base offset -1."""
    fail = Result.fail

    def forgotten(self: Any, code: ErrorCode, message: str) -> None:
        fail(self, code, message)
        self.code, self.message = ErrorCode.NONE, None

    replace(Result, "fail", forgotten)


def duplicate_on_retry() -> None:
    """Sequence numbers are not looked at: a batch that comes again is appended again."""
    _check_no_sequences()


def reordered_batches() -> None:
    """Every so often a batch waits while the next one of its producer overtakes it."""
    _check_no_sequences()
    append = produce._append
    count = 0

    def overtaken(answer: Any, wanted: Any, now_ms: int, *, waited: bool = False) -> None:
        nonlocal count
        count += 1
        if count % HELD_BACK_EVERY:
            append(answer, wanted, now_ms, waited=waited)
        else:
            answer.hold()
            answer.broker.spawn(later(answer, wanted, now_ms))

    async def later(answer: Any, wanted: Any, now_ms: int) -> None:
        await asyncio.sleep(HELD_BACK_S)
        append(answer, wanted, now_ms)
        answer.settle()

    replace(produce, "_append", overtaken)


def _check_no_sequences() -> None:
    replace(ProducerTable, "check", lambda self, header, inherited_end=0: None)


def ack_before_replication() -> None:
    """acks=all is answered when the leader's own disk has the batch."""
    waiters_for = Partition.waiters_for

    def own_disk(self: Partition, *, committed: bool) -> Any:
        return waiters_for(self, committed=False)

    replace(Partition, "waiters_for", own_disk)


def no_forwarding() -> None:
    """What another node leads is refused."""
    find = produce._find

    def refusing(answer: Any, wanted: Any, *, waited: bool) -> Partition | None:
        partition, _ = answer.broker.partitions.find(wanted.topic, wanted.topic_id, wanted.index)
        if partition is not None and not partition.state.is_leader:
            answer.refuse(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node leads it")
            return None
        return find(answer, wanted, waited=waited)

    replace(produce, "_find", refusing)


DEFECTS: dict[str, Callable[[], None]] = {
    "offset-race": offset_race,
    "double-partition-state": double_partition_state,
    "error-as-success": error_as_success,
    "duplicate-on-retry": duplicate_on_retry,
    "reordered-batches": reordered_batches,
    "ack-before-replication": ack_before_replication,
    "no-forwarding": no_forwarding,
}
