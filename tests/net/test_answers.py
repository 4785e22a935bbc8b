"""Answers with slices of files over real sockets: the same bytes, in order, nothing left open."""

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.descriptors import open_below, open_sockets
from tests.net.kit import Calls, answers, framed, request

from chronik.broker.clock import SystemClock
from chronik.model import limits
from chronik.net.budget import Budget
from chronik.net.connection import Connection
from chronik.net.listener import Listener
from chronik.storage.fs import RealFileSystem
from chronik.storage.open_files import OpenFiles
from chronik.wire.primitives import Buffer

HOST = "127.0.0.1"
SIZE = 24 * 1024 * 1024
"""More than the sockets of one connection take without a reader."""
DATA = random.Random(1).randbytes(SIZE)
Scenario = Callable[["Scene"], Coroutine[Any, Any, None]]


class Scene:
    """A listener whose calls are answered by the test, and a mapped file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.zeros = str(path.with_suffix(".zeros"))
        """Another file of the same size."""
        self.files = OpenFiles(RealFileSystem())
        self.router = Calls()
        self.listener = Listener(self.router, SystemClock(), Budget())
        self.port = 0

    def slices(self, start: int, end: int) -> list[memoryview]:
        return self.files.view(self.path, start, end, SIZE, sealed=True)

    @property
    def connection(self) -> Connection:
        (found,) = self.listener.connections
        return found

    @asynccontextmanager
    async def client(self, receive_bytes: int = 0) -> AsyncIterator[socket.socket]:
        with socket.socket() as made:
            made.setblocking(False)
            if receive_bytes:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            await asyncio.get_running_loop().sock_connect(made, (HOST, self.port))
            yield made

    async def asked(self, client: socket.socket, *numbers: int) -> None:
        """The requests have come to the router."""
        before = len(self.router.calls)
        await asyncio.get_running_loop().sock_sendall(client, framed(*map(request, numbers)))
        await until(lambda: len(self.router.calls) == before + len(numbers))

    def waits(self) -> int:
        """Bytes of answers that the socket has not taken."""
        transport = self.connection._transport
        assert transport is not None
        return transport.get_write_buffer_size()


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - what is waited for knows no event
        await asyncio.sleep(0.001)


async def received(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = await asyncio.get_running_loop().sock_recv(client, min(size - len(data), 1 << 20))
        if not part:
            break
        data += part
    return bytes(data)


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario on either loop; afterwards no descriptor is left."""
    path = tmp_path / "segment.log"
    path.write_bytes(DATA)
    path.with_suffix(".zeros").write_bytes(bytes(SIZE))

    async def limited(scenario: Scenario, scene: Scene) -> None:
        scene.port = await scene.listener.bind(HOST, 0)
        await scene.listener.start()
        try:
            async with asyncio.timeout(20):
                await scenario(scene)
                assert open_sockets(scene.port), "they are seen while they are open"
                await until(lambda: not scene.listener.connections)
        finally:
            scene.listener.stop_accepting()
            for connection in scene.listener.connections:
                connection._hang_up()  # uvloop does not end while a failed test has one open
        scene.router.calls.clear()
        assert not scene.files.has_readers(scene.path)
        scene.files.close()

    def played(scenario: Scenario) -> None:
        scene = Scene(path)
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(limited(scenario, scene))
        assert open_below(tmp_path) + open_sockets(scene.port) == []

    return played


def test_pipelined_answers_leave_in_order_and_byte_by_byte_as_they_are(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(scene: Scene) -> None:
        rng = random.Random(7)
        async with scene.client() as client:
            await scene.asked(client, *range(12))
            expected = []
            for number in rng.sample(range(12), 12):
                start = rng.randrange(SIZE - 3_000_000)
                sizes = [rng.choice([10, 5000, 70_000, 1_500_000]) for _ in range(2)]
                first = scene.slices(start, start + sizes[0])
                second = scene.slices(start + 9, start + 9 + sizes[1])
                body: list[Buffer] = [b"", b"head", b"", *first, b"", *second, b"", *first]
                if number % 3:
                    body.append(b"end")
                expected.append((number, b"".join(body)))
                scene.router.calls[number].reply(body)
            size = sum(8 + len(body) for _, body in expected)
            assert answers(await received(client, size)) == sorted(expected)

    play(scenario)


def test_a_slow_client_gets_everything_and_small_answers_stay_behind_large_ones(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client(receive_bytes=64 * 1024) as client:
            await scene.asked(client, 0, 1, 2)
            scene.router.calls[0].reply(scene.slices(0, SIZE))
            scene.router.calls[1].reply_briefly(b"small")
            scene.router.calls[2].reply(scene.slices(5, 500_005))
            await asyncio.sleep(0.01)
            assert scene.waits()
            got = await received(client, 8 + SIZE + 8 + 5 + 8 + 500_000)
            assert answers(got) == [(0, DATA), (1, b"small"), (2, DATA[5:500_005])]
            assert not scene.waits()

    play(scenario)


def test_requests_are_not_read_while_too_much_waits(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX", 1024 * 1024)

    async def scenario(scene: Scene) -> None:
        async with scene.client(receive_bytes=64 * 1024) as client:
            await scene.asked(client, 0)
            scene.router.calls[0].reply(scene.slices(0, SIZE))
            transport = scene.connection._transport
            assert transport is not None
            await until(lambda: not transport.is_reading())
            assert len(await received(client, 8 + SIZE)) == 8 + SIZE
            await until(transport.is_reading)

    play(scenario)


@pytest.mark.parametrize("taken", [0, 1_000_000])
def test_a_client_that_goes_away_leaves_nothing_open(
    play: Callable[[Scenario], None], taken: int
) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client(receive_bytes=64 * 1024) as client:
            await scene.asked(client, 0, 1)
            scene.router.calls[0].reply(scene.slices(0, SIZE))
            scene.router.calls[1].reply(scene.slices(0, SIZE))
            await received(client, taken)
            assert scene.waits()

    play(scenario)


@pytest.mark.parametrize("half_closed", [False, True], ids=["by the node", "by the client's end"])
def test_a_connection_that_is_closed_sends_first_what_is_ready(
    play: Callable[[Scenario], None], half_closed: bool
) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client(receive_bytes=64 * 1024) as client:
            await scene.asked(client, 0)
            scene.router.calls[0].reply(scene.slices(0, SIZE))
            if half_closed:
                client.shutdown(socket.SHUT_WR)
            else:
                scene.connection.close()
            assert answers(await received(client, SIZE + 9)) == [(0, DATA)]

    play(scenario)


def test_another_file_of_the_same_name_is_never_sent(play: Callable[[Scenario], None]) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client(receive_bytes=64 * 1024) as client:
            await scene.asked(client, 0, 1)
            before = scene.slices(0, SIZE)
            later = scene.slices(SIZE // 2, SIZE)
            os.rename(scene.zeros, scene.path)
            scene.files.forget(scene.path)
            scene.router.calls[0].reply(before)
            del before
            scene.router.calls[1].reply(later)
            del later
            got = await received(client, 16 + SIZE + SIZE // 2)
            assert answers(got) == [(0, DATA), (1, DATA[SIZE // 2 :])]

    play(scenario)


def test_a_client_of_this_machine_is_known_to_be_near(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FETCH_BYTES_PER_ROUND_TRIP_US", 0)  # on a busy machine, too

    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            await scene.asked(client, 0)
            assert scene.connection.peer.enough_bytes == limits.FETCH_BYTES_ENOUGH

    play(scenario)
