"""The link to one other node: requests with answers, and messages without, over one connection.

A link connects when it is first used and again after a failure, not more often than every quarter
second unless the other node was heard of. Messages keep their order. What was under way when a
connection broke has an unknown fate: its caller is told so and decides.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import cache, partial
from struct import Struct
from typing import Any, NamedTuple, TypeVar, cast

from chronik.broker.peering import Answered, Message, PeerUnavailableError
from chronik.model.limits import PEER_QUEUED_BYTES_MAX
from chronik.net.frames import POOLED_BYTES_MIN, FrameError, FramePool, FrameReader
from chronik.wire.headers import (
    read_response_header,
    response_header_version,
    write_request_header,
)
from chronik.wire.records import Buffer

CONNECT_TIMEOUT_S = 1.0
RETRY_AFTER_S = 0.25
DEAD_AFTER_S = 3.0
"""Every request is answered well before this; a connection that is silent for longer is not one."""
_FRAME = Struct(">ihhi")
"""Length, API, version and correlation id; what follows is the same for each API."""
_HEADER_BYTES = _FRAME.size - 4  # what the length counts of it
_CORRELATION_ID = Struct(">i")
_ONE_WRITE_BYTES_MAX = 4096
"""A request of so few bytes is copied behind its header: one buffer costs less than two."""

T = TypeVar("T")

log = logging.getLogger(__name__)


@cache
def _header_rest(api_key: int, version: int) -> bytes:
    return write_request_header(api_key, version, 0, "peer")[_HEADER_BYTES:]


_has_tags = cache(response_header_version)  # in the answer's header


class _Waiting(NamedTuple):
    """A request whose answer is to come."""

    api_key: int
    version: int
    deadline_s: float
    answered: Answered


class _Connection(asyncio.BufferedProtocol):
    """One connection to a peer: requests out, answers matched by correlation id."""

    def __init__(self, shared: memoryview, pool: FramePool) -> None:
        self._reader = FrameReader(shared, pool)
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, _Waiting] = {}
        self._next_id = 0
        self.silent_since: float | None = None
        """When the oldest request was sent that no sign of life has followed."""
        self._timer: asyncio.TimerHandle | None = None
        """One for all requests: it looks for those whose time is over, then sleeps again."""
        self._timer_at_s = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Everybody who waits learns that the answer will not come."""
        self.transport = None
        self._reader.forget()
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.answered(PeerUnavailableError("the connection broke", sent=True))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Answers came."""
        self.silent_since = None
        try:
            for frame in self._reader.received(nbytes):
                self._answer(frame)
        except FrameError:
            self.close()

    def _answer(self, frame: bytearray) -> None:
        if len(frame) < 4:
            raise FrameError(len(frame))
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is not None:
            api_key, version, _, answered = waiting
            if len(frame) > 4 and not frame[4] and _has_tags(api_key, version):
                body = 5  # no tags, as always
            else:
                _, body = read_response_header(api_key, version, frame)
            answered(memoryview(frame)[body:])
        if len(frame) >= POOLED_BYTES_MIN:
            self._pool.give(frame)  # used again once nobody has a view of it any more

    def send(self, api_key: int, version: int, body: list[Buffer]) -> None:
        """Writes one request that nobody waits for."""
        self._write(api_key, version, body, self._loop.time())

    def _write(self, api_key: int, version: int, body: list[Buffer], now_s: float) -> int:
        """Returns the correlation id."""
        assert self.transport is not None
        self._next_id = correlation_id = (self._next_id + 1) & 0x7FFFFFFF
        rest = _header_rest(api_key, version)
        size = len(body[0]) if len(body) == 1 else sum(map(len, body))
        whole = _HEADER_BYTES + len(rest) + size
        head = _FRAME.pack(whole, api_key, version, correlation_id) + rest
        if size <= _ONE_WRITE_BYTES_MAX:
            self.transport.write(b"".join((head, *body)))
        else:
            self.transport.writelines([head, *body])
        if self.silent_since is None:
            self.silent_since = now_s
        return correlation_id

    @property
    def is_dead(self) -> bool:
        """True where nothing has come back for too long: the other end, or the way, is gone."""
        if self.transport is None:
            return True
        if self.silent_since is None:
            return False
        return self._loop.time() - self.silent_since > DEAD_AFTER_S

    def request(
        self, api_key: int, version: int, body: list[Buffer], timeout_s: float, answered: Answered
    ) -> int:
        """Writes one request; `answered` gets what comes of it."""
        now_s = self._loop.time()
        correlation_id = self._write(api_key, version, body, now_s)
        deadline_s = now_s + timeout_s
        waiting = (api_key, version, deadline_s, answered)
        self._waiting[correlation_id] = tuple.__new__(_Waiting, waiting)
        if self._timer is None or self._timer_at_s > deadline_s:
            self._arm(deadline_s)
        return correlation_id

    def _arm(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        late = [one for one, waiting in self._waiting.items() if waiting.deadline_s <= now_s]
        for correlation_id in late:
            waiting = self._waiting.pop(correlation_id, None)
            if waiting is not None:
                waiting.answered(PeerUnavailableError("no answer in time", sent=True))
        if self._waiting:  # also where one of those who were told has asked again
            self._arm(min(waiting.deadline_s for waiting in self._waiting.values()))

    def forget(self, correlation_id: int) -> None:
        """Nobody waits for this answer any more."""
        self._waiting.pop(correlation_id, None)

    def close(self) -> None:
        """Drops the connection."""
        if self.transport is not None:
            self.transport.abort()


class PeerLink:
    """The way to one other node."""

    def __init__(
        self,
        address: tuple[str, int],
        shared: memoryview,
        pool: FramePool,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._address = address
        self._shared = shared
        self._pool = pool
        self._tasks = tasks
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection | OSError] | None = None
        self.is_refused = False
        """True where the last attempt to connect was refused."""
        self._retry_at = 0.0
        self._queue: list[Message] = []
        self._queued_bytes = 0

    async def call(
        self, api_key: int, version: int, body: list[Buffer], timeout_s: float
    ) -> memoryview:
        """The body of the answer."""
        connection = await self._connected()
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        answered = partial(_resolve, future)
        correlation_id = connection.request(api_key, version, body, timeout_s, answered)
        try:
            return await future
        finally:
            connection.forget(correlation_id)

    def request(
        self, api_key: int, version: int, body: list[Buffer], timeout_s: float, answered: Answered
    ) -> None:
        """As `call`; what comes of it goes to `answered`, at once where the link is broken."""
        connection = self._living()
        if connection is not None:
            connection.request(api_key, version, body, timeout_s, answered)
            return
        try:
            _ = self._start(self._connect_and_ask(api_key, version, body, timeout_s, answered))
        except PeerUnavailableError as error:
            answered(error)

    async def _connect_and_ask(
        self, api_key: int, version: int, body: list[Buffer], timeout_s: float, answered: Answered
    ) -> None:
        try:
            connection = await self._connected()
        except PeerUnavailableError as error:
            answered(error)
        else:
            connection.request(api_key, version, body, timeout_s, answered)

    def post(self, message: Message) -> None:
        """Sends a message that has no answer; it waits while the link connects."""
        connection = self._living()
        if connection is not None and connection.transport is not None and not self._queue:
            if connection.transport.get_write_buffer_size() < PEER_QUEUED_BYTES_MAX:
                connection.send(message.api, 0, [message.data])
            return
        if self._queued_bytes + len(message.data) > PEER_QUEUED_BYTES_MAX:
            return
        self._queue.append(message)
        self._queued_bytes += len(message.data)
        if len(self._queue) == 1:
            try:
                _ = self._start(self._deliver())
            except PeerUnavailableError:
                self._queue, self._queued_bytes = [], 0

    async def _deliver(self) -> None:
        try:
            connection = await self._connected()
            for message in self._queue:
                connection.send(message.api, 0, [message.data])
        except PeerUnavailableError:
            pass  # Raft sends again what matters
        finally:
            self._queue, self._queued_bytes = [], 0

    def _living(self) -> _Connection | None:
        connection = self._connection
        if connection is None or (connection.transport and connection.silent_since is None):
            return connection  # mostly it has just been heard of
        if connection.is_dead:
            connection.close()
            self._connection = connection = None
        return connection

    async def _connected(self) -> _Connection:
        connection = self._living()
        if connection is not None:
            return connection
        loop = asyncio.get_running_loop()
        if self._connecting is None:
            if loop.time() < self._retry_at:
                raise PeerUnavailableError("it did not answer a moment ago", sent=False)
            self._connecting = self._start(self._connect())
        connecting = self._connecting
        await asyncio.wait((connecting,))  # it goes on where one of those who wait gives up
        if connecting.cancelled():
            raise PeerUnavailableError("the link was closed", sent=False)
        outcome = connecting.result()
        if isinstance(outcome, OSError):
            raise PeerUnavailableError(str(outcome), sent=False)
        if outcome.transport is None:
            # It was lost between the moment it was made and this task's turn.
            raise PeerUnavailableError("the connection broke at once", sent=False)
        return outcome

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        try:
            return self._tasks.create_task(work)
        except RuntimeError as error:  # the task group is ending
            work.close()
            raise PeerUnavailableError("this node stops", sent=False) from error

    async def _connect(self) -> _Connection | OSError:
        """The error is a value: a node that is down must not end the task group."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._shared, self._pool), *self._address
                )
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: no host has that name
            self._retry_at = loop.time() + RETRY_AFTER_S
            self.is_refused = isinstance(error, ConnectionRefusedError)
            return ConnectionError(f"cannot connect to {self._address}: {error}")
        finally:
            self._connecting = None
        self._connection = connection
        self.is_refused = False
        return connection

    def retry(self) -> None:
        """The node was heard of: whoever asks it next need not wait before it connects."""
        self._retry_at = 0.0

    def close(self) -> None:
        """Drops the connection, also one that is being made."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()


def _resolve(
    future: asyncio.Future[memoryview], outcome: memoryview | PeerUnavailableError
) -> None:
    if future.done():
        return
    if isinstance(outcome, PeerUnavailableError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
