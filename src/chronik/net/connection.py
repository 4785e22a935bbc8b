"""One client connection: frames in, calls to the router, answers out in request order."""

import asyncio
from collections import deque
from typing import Protocol, cast

from chronik.broker.clock import Clock
from chronik.broker.outbox import Outbox
from chronik.handlers.call import Call, Peer
from chronik.model import limits
from chronik.net.budget import Budget
from chronik.net.frames import POOLED_BYTES_MIN, FrameError, FramePool, FrameReader
from chronik.net.round_trip import round_trip_us
from chronik.wire.primitives import Buffer


class Router(Protocol):
    """Takes a call whose frame has arrived."""

    def route(self, call: Call) -> None:
        """Starts the call; its answer comes through `Call.reply`, or `Call.hang_up` ends it."""

    def close(self) -> None:
        """Gives up the calls under way: nobody is left to answer."""


class Host(Protocol):
    """What a connection needs of the listener that accepted it."""

    router: Router
    clock: Clock
    budget: Budget
    receive_buffer: memoryview
    frame_pool: FramePool
    outbox: Outbox
    internal: bool

    def admit(self, connection: "Connection") -> bool:
        """Counts a new client in; False when there are too many."""

    def dismiss(self, connection: "Connection") -> None:
        """Counts a client out."""

    def refused_frame(self, peer: Peer, size: int) -> None:
        """A client announced a frame that cannot be."""

    def dropped_frame(self, peer: Peer, size: int) -> None:
        """A client did not send the rest of a frame while others waited for its memory."""


class Connection(asyncio.BufferedProtocol):
    """Reads frames, hands them to the listener's router, writes answers in request order."""

    __slots__ = (
        "_calls",
        "_listener",
        "_paused",
        "_queued_bytes",
        "_reader",
        "_stopped",
        "_transport",
        "_write_paused",
        "held",
        "peer",
    )

    def __init__(self, listener: Host) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._calls: deque[Call] = deque()
        self._reader = FrameReader(listener.receive_buffer, listener.frame_pool)
        self._queued_bytes = 0
        self._paused = False
        self._stopped = False
        self._write_paused = False
        self.held = 0
        """What the budget was told of the frame under way."""
        self.peer = Peer("", 0, "", 0)

    # -- the socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the transport, or turns the client away when the node is full."""
        self._transport = cast("asyncio.Transport", transport)
        remote = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        self.peer = Peer(remote[0], remote[1], local[0], local[1])
        self.peer.internal = self._listener.internal
        if (far := round_trip_us(transport.get_extra_info("socket"))) is not None:
            self.peer.reached_in(far)
        self._transport.set_write_buffer_limits(limits.RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX)
        if not self._listener.admit(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets what nobody will read any more; appends under way go on."""
        self._transport = None
        self._reader.forget()
        self._listener.budget.hold(self, 0)
        for call in self._calls:
            call.abandoned = True
            if call.answer is None:
                self._listener.budget.release(call.size)
                if call.given_up is not None:
                    call.given_up()
        self._calls.clear()
        self._listener.dismiss(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came: every frame that is whole now becomes a call."""
        try:
            for frame in self._reader.received(nbytes):
                self._dispatch(frame)
                if self._transport is None or self._transport.is_closing():
                    return  # what follows a request that ended the connection is not served
        except FrameError as error:
            self._listener.refused_frame(self.peer, error.size)
            self._hang_up()
        if self._reader.held != self.held:
            self._listener.budget.hold(self, self._reader.held)
        if not self._paused and self._must_wait():
            self._throttle()

    def pause_writing(self) -> None:
        """The client takes its answers too slowly: read no further requests."""
        self._write_paused = True
        self._throttle()

    def resume_writing(self) -> None:
        """The client caught up."""
        self._write_paused = False
        self.unthrottle()

    # -- calls and answers

    def _dispatch(self, frame: bytearray) -> None:
        listener, size = self._listener, len(frame)
        now_ns = listener.clock.monotonic_ns()
        call = Call(frame, self.peer, now_ns, self._answered, self._hang_up)
        self._calls.append(call)
        self._queued_bytes += size
        listener.budget.take(size)
        listener.router.route(call)
        if size >= POOLED_BYTES_MIN and call.frame is not frame:
            listener.frame_pool.give(frame)  # long before the answer, perhaps

    def _hang_up(self) -> None:
        """A request that cannot be answered ends the connection, as Kafka does."""
        if self._transport is not None:
            self._transport.abort()

    def _answered(self, call: Call) -> None:
        if self._transport is None:
            return  # the client left; its share of the budget was released then
        listener, calls, size = self._listener, self._calls, call.size
        self._queued_bytes -= size
        listener.budget.release(size)
        if size >= POOLED_BYTES_MIN and call.frame:
            listener.frame_pool.give(call.frame)
        if listener.internal and call is not calls[0]:
            # Peers match answers by correlation id: a long poll must not hold up a command.
            calls.remove(call)
            calls.appendleft(call)
        if call is calls[0]:
            outbox = listener.outbox
            if outbox.gathers:
                outbox.add(self)
            else:
                self.flush()

    def flush(self) -> None:
        """Sends the answers whose turn it is."""
        out: list[Buffer] = []
        calls = self._calls
        while calls and calls[0].answer is not None:
            out += calls.popleft().answer or ()
        if out and self._transport is not None:
            self._send(self._transport, out)
        if self._paused:
            self.unthrottle()

    def _send(self, transport: asyncio.Transport, out: list[Buffer]) -> None:
        if len(out) == 1 and isinstance(out[0], bytes):
            transport.write(out[0])  # what comes most often
        else:
            transport.writelines(out)

    # -- back-pressure: not reading is the brake; only a frame that never ends is dropped

    def _must_wait(self) -> bool:
        budget = self._listener.budget
        return (
            self._stopped
            or self._write_paused
            or self._queued_bytes > limits.IN_FLIGHT_BYTES_PER_CONNECTION_MAX
            or len(self._calls) > limits.IN_FLIGHT_REQUESTS_PER_CONNECTION_MAX
            or (
                budget.turn is not self
                and (budget.used > budget.limit or (self.held > 0 and budget.crowded))
            )
        )

    def _throttle(self) -> None:
        if not self._paused and self._transport is not None and self._must_wait():
            self._paused = True
            self._transport.pause_reading()
            self._listener.budget.wait(self)

    def unthrottle(self) -> None:
        """Reads again when nothing speaks against it."""
        if not self._paused or self._transport is None:
            return
        if self._must_wait():
            # Held by its own limits before, perhaps only by the node's now.
            self._listener.budget.wait(self)
        else:
            self._paused = False
            self._transport.resume_reading()

    def drop_frame(self) -> None:
        """The frame under way is not whole in time, and others wait for its memory."""
        self._listener.dropped_frame(self.peer, self._reader.frame_size)
        self._hang_up()

    def stop_reading(self) -> None:
        """Takes no further requests; those under way are answered."""
        self._stopped = True
        self._throttle()

    def close(self) -> None:
        """Sends what is ready and closes."""
        if self._transport is not None:
            self._transport.close()
