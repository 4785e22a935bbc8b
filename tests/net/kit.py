"""A connection without a socket: a transport that notes what is done to it, and a slow router."""

import asyncio
import struct
from collections.abc import Iterable
from typing import Any

from chronik.broker.clock import Clock, SystemClock
from chronik.broker.outbox import Outbox
from chronik.handlers.call import Call, Peer
from chronik.net.budget import Budget
from chronik.net.connection import Connection
from chronik.net.frames import FramePool


class FakeTransport(asyncio.Transport):
    """Keeps what is written; `is_reading` and `aborted` are what a socket would be told."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 5), "sockname": ("10.0.0.2", 9092)})
        self.written = bytearray()
        self.sends = 0
        self._reading = True
        self.aborted = False
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.sends += 1
        for data in list_of_data:
            self.written += data

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def is_reading(self) -> bool:
        return self._reading

    def is_closing(self) -> bool:
        return self.aborted or self.closed

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Calls:
    """A router that answers when it is told to."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def route(self, call: Call) -> None:
        self.calls.append(call)
        if len(call.frame) >= 8:
            (call.correlation_id,) = struct.unpack_from(">i", call.frame, 4)

    def close(self) -> None:
        pass

    @property
    def frames(self) -> list[bytes]:
        return [bytes(call.frame) for call in self.calls]


class FakeListener:
    """What a connection needs of its listener."""

    def __init__(self, router: Any = None, budget: Budget | None = None, size: int = 4096) -> None:
        self.router: Any = router if router is not None else Calls()
        self.clock: Clock = SystemClock()
        self.budget = budget if budget is not None else Budget()
        self.receive_buffer = memoryview(bytearray(size))
        self.frame_pool = FramePool(self.budget)
        self.outbox = Outbox()
        self.connections: list[Connection] = []
        self.refused: list[int] = []
        self.dropped: list[int] = []
        self.internal = False
        self.connections_max = 1000

    def admit(self, connection: Connection) -> bool:
        self.connections.append(connection)
        return len(self.connections) <= self.connections_max

    def dismiss(self, connection: Connection) -> None:
        self.connections.remove(connection)
        self.budget.forget(connection)

    def refused_frame(self, peer: Peer, size: int) -> None:
        self.refused.append(size)

    def dropped_frame(self, peer: Peer, size: int) -> None:
        self.dropped.append(size)

    def connect(self) -> tuple[Connection, FakeTransport]:
        connection, transport = Connection(self), FakeTransport()
        connection.connection_made(transport)
        return connection, transport


def feed(connection: Connection, data: bytes) -> None:
    """Bytes as a socket delivers them, at most as many as the connection has room for."""
    while data:
        room = connection.get_buffer(-1)
        count = min(len(room), len(data))
        assert count, "a connection must offer room"
        room[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def request(correlation_id: int, size: int = 8) -> bytes:
    """A frame that `Calls` finds a correlation id in."""
    return struct.pack(">hhi", 18, 0, correlation_id).ljust(size, b"x")


def answers(data: bytes | bytearray) -> list[tuple[int, bytes]]:
    """(correlation id, body) of the answers in what was written; all of them whole."""
    found = []
    position = 0
    while position < len(data):
        length, correlation_id = struct.unpack_from(">ii", data, position)
        assert position + 4 + length <= len(data)
        found.append((correlation_id, bytes(data[position + 8 : position + 4 + length])))
        position += 4 + length
    return found
