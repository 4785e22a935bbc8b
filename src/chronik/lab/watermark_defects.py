"""Defects of the high watermark: a second copy, a store instead of a max, a wrong getter."""

import asyncio
from collections.abc import Callable
from typing import Any

from chronik.broker.evidence import trace_watermark
from chronik.broker.partition import Partition
from chronik.handlers import fetch
from chronik.lab.replacing import replace
from chronik.replica.state import ReplicaState

SYNC_S = 5.0
COPY_S = 0.05


def watermark_stored() -> None:
    """Copies of the watermark are replicated to the metadata and stored when they come back.

    Each move stores the copy of the one before it first: one move alone is enough to see it.
    """
    moved = Partition._watermark_moved
    former: dict[int, int] = {}

    def copied(self: Partition) -> None:
        moved(self)
        value, later = self.state.high_watermark, asyncio.get_running_loop().call_later
        later(COPY_S, store, self, former.get(id(self), 0))
        later(2 * COPY_S, store, self, value)
        former[id(self)] = value

    def store(self: Partition, value: int) -> None:
        if value == self.state.high_watermark:
            return
        self.state.high_watermark = value
        trace_watermark(self._tracer, self)

    replace(Partition, "_watermark_moved", copied)


def watermark_is_log_end() -> None:
    """Fetch asks a getter that falls back to the end of the log."""
    read = fetch._Fetch._read

    def to_the_end(self: Any, wanted: Any, partition: Partition, left: int, *, first: bool) -> Any:
        state = partition.state
        committed, state.high_watermark = state.high_watermark, partition.log.end_offset
        try:
            return read(self, wanted, partition, left, first=first)
        finally:
            state.high_watermark = committed

    replace(fetch._Fetch, "_read", to_the_end)


def watermark_every_5_s() -> None:
    """The watermark is brought up to date by a timer; the first time comes at the first append."""
    advance = ReplicaState._advance_watermark
    due_s: dict[int, float] = {}

    def by_timer(self: ReplicaState, candidate: int) -> bool:
        now_s = asyncio.get_running_loop().time()
        if candidate <= self.high_watermark:
            return False
        if now_s < due_s.setdefault(id(self), now_s + SYNC_S):
            return False
        due_s[id(self)] = now_s + SYNC_S
        return advance(self, candidate)

    replace(ReplicaState, "_advance_watermark", by_timer)
    written = Partition.written

    def synced_later(self: Partition, write: Any, duration_us: int) -> None:
        written(self, write, duration_us)
        asyncio.get_running_loop().call_later(SYNC_S, sync, self)

    def sync(self: Partition) -> None:
        if self.state.is_leader and self.state._recompute_watermark():
            trace_watermark(self._tracer, self)
            self._watermark_moved()

    replace(Partition, "written", synced_later)


DEFECTS: dict[str, Callable[[], None]] = {
    "watermark-stored": watermark_stored,
    "watermark-is-log-end": watermark_is_log_end,
    "watermark-every-5s": watermark_every_5_s,
}
