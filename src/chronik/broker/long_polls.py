"""Consumers' long polls on one partition.

A produce must not pay for those who wait. A poll that needs many bytes is not looked at before so
many were written; those that have what they need are woken together, in one step; and they take
turns on the event loop (`turns.py`), so that an acknowledgement waits for a few of them at most.
"""

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol


class Poll(Protocol):
    """A fetch that waits."""

    def look_again(self) -> None:
        """There may be enough now: is answered and discarded, or added anew to wait for more."""


class Polls(OrderedDict[Poll, None]):
    """Those who wait for the same byte, first come first; and, woken, for their turn."""

    def __init__(self, at_bytes: int) -> None:
        super().__init__()
        self.at_bytes = at_bytes


Woken = Callable[[Polls], None]
"""Has all of them look again; who is discarded before it is their turn does not."""


def look_at_once(polls: Polls) -> None:
    """Without turns."""
    while polls:
        polls.popitem(last=False)[0].look_again()


class LongPolls:
    """Those who wait for data, by the number of bytes that must have been written for them."""

    __slots__ = ("_at_bytes", "_for_any", "_heap", "_places", "_woken")

    def __init__(self, woken: Woken = look_at_once) -> None:
        self._woken = woken
        self._at_bytes: dict[int, Polls] = {}
        self._heap: list[int] = []
        """The keys of `_at_bytes`, and some that were."""
        self._for_any = Polls(0)
        """Those who take any byte, as most consumers do: they need no order."""
        self._places: dict[Poll, Polls] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, at_bytes: int, poll: Poll) -> None:
        """Has the poll woken, once, when so much was written; an earlier wish of it is void."""
        if poll in self._places:
            self.discard(poll)
        polls = self._at_bytes.get(at_bytes)
        if polls is None:
            polls = self._at_bytes[at_bytes] = Polls(at_bytes)
            heappush(self._heap, at_bytes)
        polls[poll] = None
        self._places[poll] = polls

    def add_for_any(self, poll: Poll) -> None:
        """Has the poll woken, once, as soon as something is committed."""
        if poll in self._places:
            self.discard(poll)
        self._for_any[poll] = None
        self._places[poll] = self._for_any

    def discard(self, poll: Poll) -> None:
        """The poll waits no longer, nor for its turn."""
        polls = self._places.pop(poll, None)
        if polls is not None:
            polls.pop(poll, None)
            if polls.at_bytes and not polls and self._at_bytes.get(polls.at_bytes) is polls:
                del self._at_bytes[polls.at_bytes]
                self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._at_bytes) + 16:
            self._heap = list(self._at_bytes)
            heapify(self._heap)

    def reached(self, written_bytes: int) -> None:
        """Wakes those for whom there may be enough now; neither they nor the others cost much."""
        if self._for_any:
            self._wake_for_any()
        heap = self._heap
        while heap and heap[0] <= written_bytes:
            polls = self._at_bytes.pop(heappop(heap), None)
            if polls is not None:
                self._woken(polls)

    def wake_all(self) -> None:
        """Something else than data: a role, an epoch, the log's start."""
        if self._for_any:
            self._wake_for_any()
        everybody, self._at_bytes, self._heap = self._at_bytes, {}, []
        for polls in everybody.values():
            self._woken(polls)

    def _wake_for_any(self) -> None:
        polls, self._for_any = self._for_any, Polls(0)
        self._woken(polls)
