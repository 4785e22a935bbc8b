"""Answers that become ready together leave together.

Each send is a system call that wakes the client's process, and costs more than all that Chronik
does for a small answer. A cycle of the group commit releases the answers of many requests, and a
client that sends several at once gets theirs in one piece.
"""

from collections.abc import Callable
from typing import Protocol


class Sender(Protocol):
    """A connection."""

    def flush(self) -> None:
        """Sends the answers that are ready."""


class Outbox:
    """The connections of a node that have something to send when the work at hand is done."""

    __slots__ = ("_ready", "gathers")

    def __init__(self) -> None:
        self.gathers = False
        """Whether work is at hand whose answers should wait for each other."""
        self._ready: dict[Sender, None] = {}

    def add(self, sender: Sender) -> None:
        """Has it send when the work is done."""
        assert self.gathers, "nobody would send it"
        self._ready[sender] = None

    def together(self, work: Callable[[], None]) -> None:
        """Does the work, then sends what it made ready, whether or not it went well."""
        if self.gathers:
            work()
            return
        self.gathers = True
        try:
            work()
        finally:
            self.gathers = False
            ready, self._ready = self._ready, {}
            for sender in ready:
                sender.flush()
