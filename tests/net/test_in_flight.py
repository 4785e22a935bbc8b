"""What one client has under way is bounded: the rest waits in its socket, not in our memory."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvloop
from tests.net.kit import Calls, answers, framed, request

from chronik.broker.clock import SystemClock
from chronik.handlers.call import Call
from chronik.model.limits import BATCH_BYTES_MAX
from chronik.net.budget import Budget
from chronik.net.frames import POOLED_STEP_BYTES
from chronik.net.listener import Listener

HOST = "127.0.0.1"
MIB = 1024 * 1024
BOUND_BYTES = 16 * MIB
"""Said here once more: a bound that is changed should be so on purpose."""
FRAME_BYTES = BATCH_BYTES_MAX + 100
"""A produce request with one of the largest batches."""
FITS = -(-BOUND_BYTES // FRAME_BYTES)
"""Reading stops with the frame that goes beyond the bound."""
SENT = 100
"""Much more than the bound and the two ends of the socket hold together."""
QUIET_S = 0.05
"""So long nothing must happen where nothing should."""


class Keeping(Calls):
    """Also remembers which buffers there were: two of them never share an id, as none is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers: dict[int, bytearray] = {}

    def route(self, call: Call) -> None:
        super().route(call)
        self.buffers[id(call.frame)] = call.frame


class Scene:
    """A listener whose calls are answered by the test, and a client that sends all it can."""

    def __init__(self) -> None:
        self.router = Keeping()
        self.listener = Listener(self.router, SystemClock(), Budget())
        self.received = bytearray()

    @property
    def under_way(self) -> list[Call]:
        return [call for call in self.router.calls if call.answer is None]

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        port = await self.listener.bind(HOST, 0)
        await self.listener.start()
        loop = asyncio.get_running_loop()
        with socket.socket() as made:
            made.setblocking(False)
            await loop.sock_connect(made, (HOST, port))
            work = [loop.create_task(self._send(made)), loop.create_task(self._receive(made))]
            try:
                yield
            finally:  # also where a test fails: a loop with an open connection does not close
                for task in work:
                    task.cancel()
                await asyncio.wait(work)
                for connection in list(self.listener.connections):
                    connection._hang_up()
                await until(lambda: not self.listener.connections)
                self.listener.stop_accepting()

    async def _send(self, client: socket.socket) -> None:
        for number in range(SENT):
            data = framed(request(number, FRAME_BYTES))
            await asyncio.get_running_loop().sock_sendall(client, data)

    async def _receive(self, client: socket.socket) -> None:
        while part := await asyncio.get_running_loop().sock_recv(client, 4096):
            self.received += part


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - what is waited for knows no event
        await asyncio.sleep(0.001)


async def stopped(scene: Scene) -> None:
    """No further request comes: the connection is not read, or all are here."""
    (connection,) = scene.listener.connections
    await until(lambda: connection._paused or len(scene.router.calls) == SENT)
    before = len(scene.router.calls)
    await asyncio.sleep(QUIET_S)
    assert len(scene.router.calls) == before


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def play(
    request: pytest.FixtureRequest,
) -> Callable[[Callable[[Scene], Coroutine[Any, Any, None]]], None]:
    async def limited(scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        scene = Scene()
        async with asyncio.timeout(20), scene.client():
            await until(lambda: bool(scene.listener.connections))
            await scenario(scene)

    def played(scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(limited(scenario))

    return played


Play = Callable[[Callable[[Scene], Coroutine[Any, Any, None]]], None]


def test_fm62_a_client_is_read_up_to_the_bound_and_on_when_answers_leave(play: Play) -> None:
    async def scenario(scene: Scene) -> None:
        await stopped(scene)
        assert len(scene.under_way) == FITS
        assert scene.listener.budget.used < BOUND_BYTES + 2 * FRAME_BYTES, "all that is held"

        last = scene.under_way[-1]
        last.reply([b""])
        await asyncio.sleep(QUIET_S)
        assert len(scene.router.calls) == FITS, "its answer may not leave before the others"

        scene.under_way[0].reply([b""])
        await stopped(scene)
        assert len(scene.under_way) == FITS, "as many as were answered came after them"

        while len(scene.received) < 8 * SENT:
            for call in scene.under_way:
                call.reply([b""])
            assert len(scene.under_way) <= FITS
            await asyncio.sleep(0)
        assert answers(scene.received) == [(number, b"") for number in range(SENT)]
        assert scene.listener.budget.used == 0

    play(scenario)


def test_the_buffers_of_a_client_that_sends_all_it_can_are_used_again(play: Play) -> None:
    """The bound is what the pool keeps: beyond it every frame would take fresh memory."""

    async def scenario(scene: Scene) -> None:
        while len(scene.received) < 8 * SENT:
            await stopped(scene)
            for call in scene.under_way:
                call.reply([b""])
            await asyncio.sleep(0)
        held = len(scene.router.buffers) * (FRAME_BYTES + POOLED_STEP_BYTES)
        assert held < BOUND_BYTES + 4 * MIB
        assert scene.listener.frame_pool.bytes < BOUND_BYTES + 4 * MIB

    play(scenario)
