"""The operator's HTTP server: `/metrics` for Prometheus, `/health` for probes, `/` for people.

HTTP/1.1, GET only, one request per connection, bounded in header size, time and connections.
It shares the event loop with the broker, so it computes little there and nothing for strangers:
bind it to an address that only operators reach.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

from chronik.broker.metrics import Metrics
from chronik.broker.status import Health, NodeStatus
from chronik.model.limits import HTTP_CONNECTIONS_MAX, HTTP_HEADER_BYTES_MAX
from chronik.net.page import CONTENT_SECURITY_POLICY, render_page

log = logging.getLogger(__name__)

READ_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 30.0

_TEXT = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_JSON = "application/json"


class Response(NamedTuple):
    """What goes back, before its headers are written."""

    status: HTTPStatus
    content_type: str
    body: bytes


def _text(status: HTTPStatus, text: str) -> Response:
    return Response(status, _TEXT, (text + "\n").encode())


def parse_path(head: bytes) -> str | Response:
    """The path of a GET request, or the answer to what is none."""
    parts = head.split(b"\r\n", 1)[0].split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
        return _text(HTTPStatus.BAD_REQUEST, "this port speaks HTTP/1.1")
    if parts[0] != b"GET":
        return _text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is served")
    return parts[1].split(b"?", 1)[0].decode("latin-1")


def serialize(response: Response) -> bytes:
    """Status line, headers and body; the connection ends with it."""
    head = (
        f"HTTP/1.1 {response.status.value} {response.status.phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        f"Content-Security-Policy: {CONTENT_SECURITY_POLICY}\r\n"
        f"{'Allow: GET' + chr(13) + chr(10) if response.status == 405 else ''}"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + response.body


class Pages:
    """What the server shows; each callable is asked anew on the event loop."""

    def __init__(
        self,
        metrics: Metrics,
        status: Callable[[], NodeStatus],
        health: Callable[[], Health],
    ) -> None:
        self._metrics = metrics
        self._status = status
        self._health = health
        self._rendering = asyncio.Lock()

    async def get(self, path: str) -> Response:
        """The page at a path."""
        match path:
            case "/":
                return await self._get_page()
            case "/health":
                return self._get_health()
            case "/metrics":
                return await self._get_metrics()
            case _:
                return _text(HTTPStatus.NOT_FOUND, "try /, /health or /metrics")

    def _get_health(self) -> Response:
        health = self._health()
        status = HTTPStatus.OK if health.ok else HTTPStatus.SERVICE_UNAVAILABLE
        state = "ok" if health.ok else "failing"
        body = json.dumps({"status": state, "reasons": list(health.reasons)}) + "\n"
        return Response(status, _JSON, body.encode())

    async def _get_page(self) -> Response:
        status = self._status()
        async with self._rendering:
            page = await asyncio.to_thread(render_page, status)
        return Response(HTTPStatus.OK, _HTML, page.encode())

    async def _get_metrics(self) -> Response:
        from chronik.broker.exposition import CONTENT_TYPE, render  # noqa: PLC0415 - loads a library

        partitions = list(self._metrics.providers.partitions())
        async with self._rendering:  # one thread at most, however many ask
            body = await asyncio.to_thread(render, self._metrics, partitions)
        return Response(HTTPStatus.OK, CONTENT_TYPE, body)


class HttpServer:
    """Listens from `start` to `close`. Its connections are tasks of the group it is given."""

    def __init__(
        self,
        pages: Pages,
        tasks: asyncio.TaskGroup,
        *,
        connections_max: int = HTTP_CONNECTIONS_MAX,
        read_timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self.refused_connections = 0
        self._pages = pages
        self._tasks = tasks
        self._connections_max = connections_max
        self._read_timeout_s = read_timeout_s
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port, which the system chose if it was 0."""
        self._server = await asyncio.start_server(
            self._accept, host, port, limit=HTTP_HEADER_BYTES_MAX, reuse_address=True
        )
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Frees the port and ends every connection; the group waits for their last step."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._connections_max:
            self.refused_connections += 1
            writer.transport.abort()
            return
        task = self._tasks.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer. No failure here may reach the group: it would end the node."""
        try:
            response = await self._respond(reader)
            if response is not None:
                async with asyncio.timeout(WRITE_TIMEOUT_S):
                    writer.write(serialize(response))
                    await writer.drain()
                    await _end(reader, writer)
        except (OSError, TimeoutError):
            pass  # the client left, or takes its answer too slowly
        finally:
            # After a finished answer nothing is left to lose; before it, abort is what we want.
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader) -> Response | None:
        try:
            async with asyncio.timeout(self._read_timeout_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "header too large")
        except TimeoutError:
            return _text(HTTPStatus.REQUEST_TIMEOUT, "no request came")
        except asyncio.IncompleteReadError:
            return None
        path = parse_path(head)
        if isinstance(path, Response):
            return path
        try:
            return await self._pages.get(path)
        except Exception:
            log.exception("cannot serve %s", path)
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, "see the node's log")


async def _end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Half-closes and reads what the client still sends: else a reset may overtake the answer."""
    with suppress(OSError):
        writer.write_eof()
    left = 1 << 20
    while left > 0 and (data := await reader.read(HTTP_HEADER_BYTES_MAX)):
        left -= len(data)
