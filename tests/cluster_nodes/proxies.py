"""The network between the nodes as one TCP proxy per direction of a pair, to be cut and mended.

Node a reaches node b through `port(a, b)`. A cut holds bytes back, as a network does that loses
packets: connections stay open, and what was held back arrives, in order, when the cut is mended.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

from tests.servers import HOST

CHUNK = 1 << 16
Way = tuple[int, int]


class Network:
    """Proxies between all pairs, on an event loop of their own; a node that hangs holds up none."""

    def __init__(self, peer_ports: dict[int, int]) -> None:
        self._ports: dict[Way, int] = {}
        self._open: dict[Way, asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._listen(peer_ports))

    def port(self, source: int, target: int) -> int:
        """Where `source` finds `target`."""
        return self._ports[source, target]

    def cut(self, source: int, target: int) -> None:
        """Nothing that `source` sends reaches `target` any more."""
        self._do(self._set([(source, target)], is_open=False))

    def isolate(self, node: int) -> None:
        """Nothing reaches the node, and nothing leaves it."""
        self._do(self._set([way for way in self._ports if node in way], is_open=False))

    def heal(self) -> None:
        """What was held back arrives now."""
        self._do(self._set(list(self._ports), is_open=True))

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _set(self, ways: list[Way], *, is_open: bool) -> None:
        for way in ways:
            if is_open:
                self._open[way].set()
            else:
                self._open[way].clear()

    async def _listen(self, peer_ports: dict[int, int]) -> None:
        for source in peer_ports:
            for target, port in peer_ports.items():
                if source != target:
                    await self._listen_for((source, target), port)

    async def _listen_for(self, way: Way, target_port: int) -> None:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._begin(self._connect(way, target_port, reader, writer))

        server = await asyncio.start_server(accept, HOST, 0)
        self._servers.append(server)
        self._ports[way] = server.sockets[0].getsockname()[1]
        self._open[way] = asyncio.Event()
        self._open[way].set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(
        self, way: Way, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        self._begin(self._move(reader, far_writer, way))
        self._begin(self._move(far_reader, writer, (way[1], way[0])))

    async def _move(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        """One direction of one connection; its end is held back by a cut as its bytes are."""
        with contextlib.suppress(OSError):
            while data := await self._read(reader):
                await self._open[way].wait()
                writer.write(data)
                await writer.drain()
        await self._open[way].wait()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        self._writers.discard(writer)

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.read(CHUNK)
        except OSError:
            return b""

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        ends = (writer.wait_closed() for writer in self._writers)
        await asyncio.gather(*ends, return_exceptions=True)
