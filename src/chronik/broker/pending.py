"""Those who wait for the metadata log: for their own entry, for a read, for an image, for a leader.

Plain futures on the event loop; the controller releases them when it has applied what they need.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chronik.raft.messages import Entry, Position


class NotLeaderError(Exception):
    """This node does not decide. `sent`: it did, and the command may yet be carried out."""

    def __init__(self, *, sent: bool = False) -> None:
        super().__init__()
        self.sent = sent


class Pending:
    """Everybody who waits for one controller."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reads = 0
        self._confirmations: dict[bytes, asyncio.Future[None]] = {}
        self._proposals: dict[int, tuple[int, asyncio.Future[bool]]] = {}
        self._images: list[tuple[int, asyncio.Future[None]]] = []
        self._leaders: dict[object, Callable[[], None]] = {}
        self._watchers: list[Callable[[int, int], None]] = []

    @contextmanager
    def confirmation(self) -> Iterator[tuple[bytes, asyncio.Future[None]]]:
        """The context of a new read, and where it is confirmed."""
        self._reads += 1
        context = self._reads.to_bytes(8, "big")
        confirmed = self._confirmations[context] = self._loop.create_future()
        try:
            yield context, confirmed
        finally:
            del self._confirmations[context]

    def confirmed(self, context: bytes) -> None:
        """A majority has confirmed that this node leads."""
        found = self._confirmations.get(context)
        if found is not None and not found.done():
            found.set_result(None)

    @contextmanager
    def proposal(self, position: Position) -> Iterator[asyncio.Future[bool]]:
        """Where the fate of a proposed entry is told: True where it was committed."""
        committed: asyncio.Future[bool] = self._loop.create_future()
        self._proposals[position.index] = (position.term, committed)
        try:
            yield committed
        finally:
            self._proposals.pop(position.index, None)

    def applied(self, entry: Entry) -> None:
        """An entry took its place in the log; one of another term was not proposed here."""
        term, committed = self._proposals.get(entry.index, (0, None))
        if committed is not None and not committed.done():
            committed.set_result(term == entry.term)

    def image(self, version: int) -> asyncio.Future[None]:
        """Done when the image has this version."""
        seen: asyncio.Future[None] = self._loop.create_future()
        self._images.append((version, seen))
        return seen

    def image_is(self, version: int) -> None:
        """The image has moved on."""
        waiting = []
        for wanted, seen in self._images:
            if wanted > version:
                waiting.append((wanted, seen))
            elif not seen.done():
                seen.set_result(None)
        self._images = waiting

    @contextmanager
    def on_leader_change(self, changed: Callable[[], None]) -> Iterator[None]:
        """Has `changed` called, once, when another node leads, or this one does."""
        key = object()
        self._leaders[key] = changed
        try:
            yield
        finally:
            self._leaders.pop(key, None)

    def watch_leader(self, watcher: Callable[[int, int], None]) -> None:
        """Has the watcher called with leader and term, at every change."""
        self._watchers.append(watcher)

    def leader_changed(self, leader: int, term: int) -> None:
        """Tells all of them."""
        for watcher in self._watchers:
            watcher(leader, term)
        leaders, self._leaders = self._leaders, {}
        for changed in leaders.values():
            changed()
