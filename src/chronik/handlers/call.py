"""One request under way: who asked what, and the one answer it gets."""

import struct
from collections.abc import Callable, Sequence

from chronik.model import limits
from chronik.wire.primitives import Buffer

_LENGTH_AND_CORRELATION = struct.Struct(">ii")
_FLEXIBLE_HEAD = struct.Struct(">iib")
_TAG_BYTE = b"\x00"
_NO_FRAME = bytearray()


class Peer:
    """The other end of a connection, as far as handlers care."""

    __slots__ = (
        "enough_bytes",
        "host",
        "internal",
        "local_host",
        "local_port",
        "port",
        "software",
    )

    def __init__(self, host: str, port: int, local_host: str, local_port: int) -> None:
        self.host = host
        self.port = port
        self.local_host = local_host
        self.local_port = local_port
        self.software = ""
        self.internal = False
        """True for another node of the cluster, on the peers' own listener."""
        self.enough_bytes = limits.FETCH_BYTES_MAX
        """A Fetch answer of so many leaves the other partitions to the next one."""

    def reached_in(self, round_trip_us: int) -> None:
        """The longer the way, the more an answer should hold."""
        far = round_trip_us * limits.FETCH_BYTES_PER_ROUND_TRIP_US
        self.enough_bytes = min(max(limits.FETCH_BYTES_ENOUGH, far), limits.FETCH_BYTES_MAX)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Call:
    """One request and the place of its answer in the connection's queue."""

    __slots__ = (
        "_done",
        "abandoned",
        "answer",
        "api_key",
        "api_version",
        "body",
        "client_id",
        "correlation_id",
        "flexible_header",
        "frame",
        "given_up",
        "hang_up",
        "peer",
        "received_ns",
        "size",
    )

    def __init__(
        self,
        frame: bytearray,
        peer: Peer,
        received_ns: int,
        done: Callable[["Call"], None],
        hang_up: Callable[[], None],
    ) -> None:
        self.frame = frame
        self.size = len(frame)
        self.peer = peer
        self.received_ns = received_ns
        self.answer: list[Buffer] | None = None
        self.api_key = -1
        self.api_version = 0
        self.correlation_id = 0
        self.client_id: str | None = None
        self.body = 0
        self.flexible_header = False
        self.abandoned = False
        """True once the client has left: nobody reads the answer."""
        self._done = done
        self.hang_up = hang_up
        self.given_up: Callable[[], None] | None = None
        """Called when the client leaves before the answer: a long poll need not go on."""

    def let_go(self) -> None:
        """Whoever needs more of the frame has a view of it: without one its memory is free."""
        self.frame = _NO_FRAME

    def reply(self, body: Sequence[Buffer]) -> None:
        """Answers with these bytes; the connection sends them when it is their turn."""
        assert self.answer is None, "a request has one answer"
        length = 4 + self.flexible_header + sum(map(len, body))
        head = _LENGTH_AND_CORRELATION.pack(length, self.correlation_id)
        self.answer = [head + _TAG_BYTE if self.flexible_header else head, *body]
        self._done(self)

    def reply_briefly(self, body: bytes) -> None:
        """As `reply`, with few bytes: to copy them costs less than a second buffer."""
        assert self.answer is None, "a request has one answer"
        if self.flexible_header:
            head = _FLEXIBLE_HEAD.pack(5 + len(body), self.correlation_id, 0)
        else:
            head = _LENGTH_AND_CORRELATION.pack(4 + len(body), self.correlation_id)
        self.answer = [head + body]
        self._done(self)

    def no_reply(self) -> None:
        """Ends a request that gets no answer at all (acks=0)."""
        assert self.answer is None, "a request has one answer"
        self.answer = []
        self._done(self)
