"""Timers as data: deadlines in a heap, moved lazily.

A heartbeat only writes a later deadline into its timer. The heap entry stays where it is; when it
comes up too early it is put back at the deadline then valid. So thousands of members cost one heap
operation each per session timeout, not one per heartbeat.
"""

import heapq
from dataclasses import dataclass
from enum import Enum

_REBUILD_ENTRIES_MIN = 256


class TimerKind(Enum):
    """What happens at the deadline."""

    SESSION = "session"
    """A member, or one that was only given an id, was not heard of."""
    JOIN = "join"
    """A rebalance has waited long enough."""
    SYNC = "sync"
    """Members took their new generation but never asked for its assignment."""
    OFFSETS = "offsets"
    """Time to look for expired offsets."""


@dataclass(slots=True, eq=False)
class Timer:
    """One deadline of one owner; None while not set."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""
    deadline_ms: int | None = None
    queued_ms: int | None = None
    """Where its valid heap entry stands; never after the deadline."""


class Timers:
    """All timers of one coordinator."""

    __slots__ = ("_armed", "_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._armed = 0

    def set(self, timer: Timer, deadline_ms: int) -> None:
        """Moves the deadline; later is an assignment, earlier a heap push."""
        if timer.deadline_ms is None:
            self._armed += 1
        timer.deadline_ms = deadline_ms
        if timer.queued_ms is None or deadline_ms < timer.queued_ms:
            self._push(timer, deadline_ms)

    def cancel(self, timer: Timer) -> None:
        """Unsets the deadline; its heap entry is dropped when it comes up."""
        if timer.deadline_ms is not None:
            timer.deadline_ms = None
            self._armed -= 1

    def next_deadline(self) -> int | None:
        """When to call again; it may be early, never late."""
        heap = self._heap
        while heap and (heap[0][2].deadline_ms is None or heap[0][0] != heap[0][2].queued_ms):
            self._pop()
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> Timer | None:
        """The next timer whose deadline has come, no longer set.

        One at a time, because what it does may cancel or move the next one.
        """
        while self._heap and self._heap[0][0] <= now_ms:
            timer = self._pop()
            if timer is None or timer.deadline_ms is None:
                continue
            if timer.deadline_ms <= now_ms:
                self.cancel(timer)
                return timer
            self._push(timer, timer.deadline_ms)
        return None

    def _push(self, timer: Timer, deadline_ms: int) -> None:
        if len(self._heap) > max(_REBUILD_ENTRIES_MIN, 4 * self._armed):
            self._rebuild()
        timer.queued_ms = deadline_ms
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_ms, self._sequence, timer))

    def _pop(self) -> Timer | None:
        """The timer of the first entry, or None where a later push has replaced that entry."""
        at_ms, _, timer = heapq.heappop(self._heap)
        if at_ms != timer.queued_ms:
            return None
        timer.queued_ms = None
        return timer

    def _rebuild(self) -> None:
        """Forgets the entries of cancelled and moved timers, so that churn cannot fill memory."""
        live = [e for e in self._heap if e[2].deadline_ms is not None and e[0] == e[2].queued_ms]
        for _, _, timer in self._heap:
            if timer.deadline_ms is None:
                timer.queued_ms = None
        heapq.heapify(live)
        self._heap = live
