"""The bound on the request bytes that all connections of a node hold together."""

from typing import Protocol

from chronik.model import limits


class Waiting(Protocol):
    """Somebody who stopped reading until there is room."""

    def unthrottle(self) -> None:
        """Reads again when nothing speaks against it."""


class Budget:
    """Request bytes that one node holds; connections wait here when it is used up."""

    __slots__ = ("_waiting", "limit", "used")

    def __init__(self, limit: int = limits.IN_FLIGHT_BYTES_MAX) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: dict[Waiting, None] = {}

    @property
    def exceeded(self) -> bool:
        """True while no connection may read."""
        return self.used > self.limit

    def take(self, size: int) -> None:
        """Counts a frame in."""
        self.used += size

    def release(self, size: int) -> None:
        """Counts a frame out and wakes those who waited for room."""
        was_exceeded = self.exceeded
        self.used -= size
        assert self.used >= 0, "released more than was taken"
        if was_exceeded and not self.exceeded:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.unthrottle()

    def wait(self, connection: Waiting) -> None:
        """Has the connection woken when there is room again."""
        if self.exceeded:
            self._waiting[connection] = None

    def forget(self, connection: Waiting) -> None:
        """The connection is gone."""
        self._waiting.pop(connection, None)
