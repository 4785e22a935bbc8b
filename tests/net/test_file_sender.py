"""Answers sent from files, over real sockets: the same bytes, in order, nothing left open."""

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
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
from chronik.net.file_sender import FileSender
from chronik.net.listener import Listener
from chronik.storage.fs import RealFileSystem
from chronik.storage.open_files import OpenFiles
from chronik.storage.segment import Read
from chronik.wire.pieces import FileSlice, Piece, buffers_of

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

    def pieces(self, start: int, end: int) -> list[Piece]:
        slices = self.files.view(self.path, start, end, SIZE, sealed=True)
        return Read(slices, end - start, 0, 0, start).pieces()

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
                first = scene.pieces(start, start + sizes[0])
                second = scene.pieces(start + 9, start + 9 + sizes[1])
                body: list[Piece] = [b"", b"head", b"", *first, b"", *second, b"", *first]
                if number % 3:
                    body.append(b"end")
                expected.append((number, b"".join(buffers_of(body))))
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
            scene.router.calls[0].reply(scene.pieces(0, SIZE))
            scene.router.calls[1].reply([b"small"])
            scene.router.calls[2].reply(scene.pieces(5, 500_005))
            assert scene.waits()
            got = await received(client, 8 + SIZE + 8 + 5 + 8 + 500_000)
            assert answers(got) == [(0, DATA), (1, b"small"), (2, DATA[5:500_005])]
            assert not scene.waits()
            await scene.asked(client, 3)
            scene.router.calls[3].reply([b"by the transport again"])
            assert answers(await received(client, 30)) == [(3, b"by the transport again")]

    play(scenario)


def test_nothing_overtakes_what_the_transport_has_still_to_send(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client(receive_bytes=64 * 1024) as client:
            await scene.asked(client, 0, 1)
            scene.router.calls[0].reply([DATA])
            scene.router.calls[1].reply(scene.pieces(0, 100_000))
            assert scene.connection._files is None
            got = await received(client, 16 + SIZE + 100_000)
            assert answers(got) == [(0, DATA), (1, DATA[:100_000])]

    play(scenario)


def test_requests_are_not_read_while_too_much_waits(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESPONSE_BYTES_QUEUED_PER_CONNECTION_MAX", 1024 * 1024)

    async def scenario(scene: Scene) -> None:
        async with scene.client(receive_bytes=64 * 1024) as client:
            await scene.asked(client, 0)
            scene.router.calls[0].reply(scene.pieces(0, SIZE))
            transport = scene.connection._transport
            assert transport is not None
            assert not transport.is_reading()
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
            scene.router.calls[0].reply(scene.pieces(0, SIZE))
            scene.router.calls[1].reply(scene.pieces(0, SIZE))
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
            scene.router.calls[0].reply(scene.pieces(0, SIZE))
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
            before = scene.pieces(0, SIZE)
            later = scene.pieces(SIZE // 2, SIZE)
            os.rename(scene.zeros, scene.path)
            scene.files.forget(scene.path)
            scene.router.calls[0].reply(before)
            del before
            scene.router.calls[1].reply(later)
            del later
            got = await received(client, 16 + SIZE + SIZE // 2)
            assert answers(got) == [(0, DATA), (1, DATA[SIZE // 2 :])]

    play(scenario)


def test_where_files_cannot_be_sent_their_views_are(play: Callable[[Scenario], None]) -> None:
    async def scenario(scene: Scene) -> None:
        directory = os.open(os.path.dirname(scene.path), os.O_RDONLY)
        async with scene.client(receive_bytes=64 * 1024) as client:
            await scene.asked(client, 0)
            views = [memoryview(DATA)[at : at + (1 << 20)] for at in range(0, SIZE, 1 << 20)]
            slices = [FileSlice(view, directory, 0) for view in views]
            scene.router.calls[0].reply([b"head", *slices])
            got = await received(client, 12 + SIZE)
            assert answers(got) == [(0, b"head" + DATA)]
        os.close(directory)

    play(scenario)


def test_a_file_that_was_cut_ends_the_connection_and_not_the_node(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(scene: Scene) -> None:
        async with scene.client() as client:
            await scene.asked(client, 0)
            pieces = scene.pieces(0, 1_000_000)
            os.truncate(scene.path, 500_000)
            scene.router.calls[0].reply(pieces)
            assert len(await received(client, 1_000_008)) == 500_008

    play(scenario)


def test_only_so_much_is_sent_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SENT_AT_ONCE_BYTES_MAX", 100_000)
    path = tmp_path / "segment.log"
    path.write_bytes(DATA)
    one, other = socket.socketpair()
    with one, other:
        sender = FileSender(one.fileno())
        scene = Scene(path)
        left = sender.send([b"head", *scene.pieces(0, 1_000_000)])
        sent = other.recv(200_000, socket.MSG_WAITALL | socket.MSG_DONTWAIT)
        sender.close()
    assert len(sent) == 100_000
    assert sent + b"".join(buffers_of(left)) == b"head" + DATA[:1_000_000]
    del left
    scene.files.close()


def test_slices_are_sent_from_the_file_if_they_are_large(tmp_path: Path) -> None:
    path, size = tmp_path / "segment.log", limits.SENT_FROM_FILE_BYTES_MIN
    path.write_bytes(DATA[: 4 * size])
    files = OpenFiles(RealFileSystem())
    view = partial(files.view, str(path), size=4 * size, sealed=True)
    (large,) = Read(view(start=3, end=3 + size), size, 0, 0, 3).pieces()
    (small,) = Read(view(start=3, end=2 + size), size - 1, 0, 0, 3).pieces()
    assert isinstance(large, FileSlice)
    assert isinstance(small, memoryview)
    files.forget(str(path))
    assert os.pread(large.descriptor, len(large), large.position) == large.view
    del large, small
    assert not files.has_readers(str(path))
    assert open_below(tmp_path) == []
