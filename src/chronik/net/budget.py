"""The bound on the request bytes that all connections of a node hold together.

Whole requests and the buffers of frames that are not whole yet count alike. Whole requests end by
themselves; a frame ends only if its client sends the rest. So frames under way never take more than
half of the budget: beyond it they wait, and one of them at a time, in order, reads on until it is
whole. One that does not use its turn is dropped: memory is bounded, and nobody waits for ever.
"""

import asyncio
from typing import Protocol

from chronik.model import limits


class Waiting(Protocol):
    """Somebody who stopped reading until there is room."""

    held: int
    """Bytes of the buffer of its frame under way; 0 where there is none."""

    def unthrottle(self) -> None:
        """Reads again when nothing speaks against it."""

    def drop_frame(self) -> None:
        """Gives up the frame under way, and with it the connection."""


class Budget:
    """Request bytes that one node holds; connections wait here when it is used up."""

    __slots__ = ("_timer", "_turn_s", "_waiting", "arriving", "limit", "turn", "used")

    def __init__(
        self, limit: int = limits.IN_FLIGHT_BYTES_MAX, turn_s: float = limits.FRAME_TURN_S
    ) -> None:
        self.limit = limit
        self.used = 0
        self.arriving = 0
        """The part of `used` that frames under way hold."""
        self.turn: Waiting | None = None
        """Whoever reads on although frames under way hold too much."""
        self._turn_s = turn_s
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[Waiting, None] = {}

    @property
    def exceeded(self) -> bool:
        """True while no connection may read."""
        return self.used > self.limit

    @property
    def crowded(self) -> bool:
        """True while no connection with a frame under way may read."""
        return self.arriving > self.limit // 2

    @property
    def roomy(self) -> bool:
        """True while a frame may have a buffer before its bytes are here."""
        return self.arriving <= self.limit // 4

    def take(self, size: int) -> None:
        """Counts a request in."""
        self.used += size

    def release(self, size: int) -> None:
        """Counts a request out and wakes those who waited for room."""
        before, limit = self.used, self.limit
        self.used = after = before - size
        assert after >= 0, "released more than was taken"
        if before > limit >= after:
            self._wake()

    def hold(self, connection: Waiting, held: int) -> None:
        """The buffer of the connection's frame under way has this size now."""
        change = held - connection.held
        connection.held = held
        was_crowded = self.crowded
        self.arriving += change
        if change > 0:
            self.used += change
        else:
            self.release(-change)
        if was_crowded and not self.crowded:
            self._wake()
        if not held and connection is self.turn:
            self._next_turn()

    def wait(self, connection: Waiting) -> None:
        """Has the connection woken when there is room again, or when it is its turn."""
        if self.exceeded or self.crowded:
            self._waiting[connection] = None
            if self.turn is None and self.crowded:
                self._next_turn()

    def forget(self, connection: Waiting) -> None:
        """The connection is gone, and holds nothing any more."""
        self._waiting.pop(connection, None)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            connection.unthrottle()

    def _next_turn(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.turn = None
        if self.crowded:
            self.turn = next((one for one in self._waiting if one.held), None)
        if self.turn is not None:
            del self._waiting[self.turn]
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._turn_s, self._turn_is_over)
            self.turn.unthrottle()

    def _turn_is_over(self) -> None:
        """The frame is not whole; where others wait for its memory it has had its time."""
        self._timer = None
        late, self.turn = self.turn, None
        if late is not None and self.crowded:
            late.drop_frame()
        self._next_turn()
