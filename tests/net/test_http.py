"""The operator's pages, asked over real sockets: answers, bounds, garbage, and an orderly end."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.broker.metrics import Metrics
from chronik.broker.status import Health, ListenerStatus, NodeStatus, PartitionStatus, Rates
from chronik.model.limits import HTTP_HEADER_BYTES_MAX
from chronik.net import http
from chronik.net.http import HttpServer, Pages, parse_path
from chronik.net.page import (
    CONTENT_SECURITY_POLICY,
    PARTITIONS_SHOWN_MAX,
    TOPICS_SHOWN_MAX,
    human_bytes,
    human_count,
    human_duration,
    render_page,
)

HEALTHY = Health()


def node_status(partitions: tuple[PartitionStatus, ...] = (), **changes: object) -> NodeStatus:
    listener = ListenerStatus("PLAINTEXT", "0.0.0.0:9092", "kafka.example:9092")
    values: dict[str, object] = {
        "node_id": 3,
        "cluster_id": "abc",
        "version": "0.1.0",
        "uptime_s": 61.0,
        "listeners": (listener,),
        "partitions": partitions,
        **changes,
    }
    return NodeStatus(**values)  # type: ignore[arg-type]


def partition(topic: str, index: int = 0) -> PartitionStatus:
    return PartitionStatus(topic, index, 3, 1, 0, 1234567, 1234560, 2048, (3,), (3,))


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def serve(
    scenario: Callable[[int, HttpServer], Awaitable[None]],
    status: Callable[[], NodeStatus] = node_status,
    health: Health = HEALTHY,
    connections_max: int = 10,
    read_timeout_s: float = 10.0,
) -> None:
    async def main() -> None:
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            pages = Pages(Metrics(3), status, lambda: health)
            server = HttpServer(
                pages, tasks, connections_max=connections_max, read_timeout_s=read_timeout_s
            )
            port = await server.start("127.0.0.1", 0)
            try:
                await scenario(port, server)
            finally:
                server.close()

    asyncio.run(main())


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def test_metrics_are_prometheus_text() -> None:
    async def scenario(port: int, server: HttpServer) -> None:
        head, _, body = (await ask(port, get("/metrics"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert b"text/plain; version=0.0.4" in head
        assert f"Content-Length: {len(body)}".encode() in head
        assert b"kafka_server_replicamanager_partitioncount 0.0" in body
        assert b"process_cpu_seconds_total" in body

    serve(scenario)


def test_health_is_200_or_503_with_reasons() -> None:
    async def healthy(port: int, server: HttpServer) -> None:
        head, _, body = (await ask(port, get("/health"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert json.loads(body) == {"status": "ok", "reasons": []}

    async def failing(port: int, server: HttpServer) -> None:
        head, _, body = (await ask(port, get("/health?verbose"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert json.loads(body) == {"status": "failing", "reasons": ["disk full"]}

    serve(healthy)
    serve(failing, health=Health(("disk full",)))


def test_the_page_is_html_that_runs_only_its_own_script() -> None:
    async def scenario(port: int, server: HttpServer) -> None:
        head, _, body = (await ask(port, get("/"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert f"Content-Security-Policy: {CONTENT_SECURITY_POLICY}".encode() in head
        assert b"Chronik node 3" in body

    serve(scenario)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/nothing"), 404),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        (b"HEAD / HTTP/1.1\r\n\r\n", 405),
        (b"GET /\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x00\x00\x00\x10\x00\x12 kafka\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * HTTP_HEADER_BYTES_MAX + b"\r\n\r\n", 431),
        (b"x" * 200_000, 431),
    ],
)
def test_what_is_no_get_is_answered_with_its_status(request_bytes: bytes, status: int) -> None:
    async def scenario(port: int, server: HttpServer) -> None:
        answer = await ask(port, request_bytes)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert (b"\r\nAllow: GET\r\n" in answer) == (status == 405)

    serve(scenario)


@given(st.binary(max_size=200))
def test_any_request_line_is_parsed_or_refused(head: bytes) -> None:
    assert isinstance(parse_path(head), str | http.Response)


def test_a_failing_page_is_a_500_and_the_node_lives(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> NodeStatus:
        raise RuntimeError("no status")

    async def scenario(port: int, server: HttpServer) -> None:
        assert (await ask(port, get("/"))).startswith(b"HTTP/1.1 500 ")
        assert (await ask(port, get("/health"))).startswith(b"HTTP/1.1 200 ")

    serve(scenario, status=broken)
    assert "cannot serve /" in caplog.text


def test_a_silent_client_is_sent_away() -> None:
    async def scenario(port: int, server: HttpServer) -> None:
        assert (await ask(port, b"GET / HT")).startswith(b"HTTP/1.1 408 ")

    serve(scenario, read_timeout_s=0.05)


async def read_or_reset(reader: asyncio.StreamReader) -> bytes:
    """What came before the end; a reset is an end too."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def test_connections_are_bounded_and_close_ends_those_that_wait() -> None:
    async def scenario(port: int, server: HttpServer) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await read_or_reset(reader) == b""
        assert server.refused_connections == 1
        server.close()
        for other, _ in idle:
            assert await read_or_reset(other) == b""
        for _, one in [*idle, (reader, writer)]:
            one.close()

    serve(scenario, connections_max=2)


def test_a_client_that_leaves_early_harms_nobody() -> None:
    async def scenario(port: int, server: HttpServer) -> None:
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/metrics"))
            writer.transport.abort()
        assert (await ask(port, get("/health"))).startswith(b"HTTP/1.1 200 ")

    serve(scenario)


def test_the_page_shows_topics_offsets_sizes_and_addresses() -> None:
    page = render_page(node_status((partition("orders"), partition("orders", 1))))
    for text in ("orders", "1,234,567", "1,234,560", "4.0 KiB", "advertised as kafka.example:9092"):
        assert text in page
    assert "healthy" in page
    assert "http://" not in page
    assert "https://" not in page


def test_names_are_escaped_wherever_they_appear() -> None:
    evil = "<img src=x onerror=alert(1)>\"'"
    page = render_page(
        node_status((partition(evil),), cluster_id=evil, version=evil, health=Health((evil,)))
    )
    assert "<img" not in page
    assert page.count("&lt;img") == 5


def test_a_large_node_has_a_bounded_page_that_says_what_is_missing() -> None:
    many = tuple(partition(f"t{index:04}") for index in range(TOPICS_SHOWN_MAX + 11))
    wide = tuple(partition("a", index) for index in range(PARTITIONS_SHOWN_MAX + 5))
    page = render_page(node_status(wide + many))
    assert "and 12 more topics" in page
    assert "and 5 more<" in page
    assert len(page) < 1_000_000


def test_reasons_stalls_and_lost_traces_are_on_the_page() -> None:
    page = render_page(
        node_status(health=Health(("no controller",)), stalls=4, stall_s_max=0.2, trace_dropped=7)
    )
    assert "failing" in page
    assert "no controller" in page
    assert "longest pause 200 ms" in page
    assert "7 events lost" in page


def test_the_curve_spans_the_card_and_never_leaves_it() -> None:
    curve = tuple(Rates(bytes_in=float(n * n)) for n in range(30))
    page = render_page(node_status(curve=curve))
    match = re.search(r'polyline points="([^"]+)"', page)
    assert match is not None
    points = [tuple(map(float, pair.split(","))) for pair in match[1].split()]
    assert (points[0][0], points[-1][0]) == (0.0, 600.0)
    assert all(0 <= y <= 56 for _, y in points)


def test_where_nothing_flows_the_peak_is_nothing() -> None:
    page = render_page(node_status(curve=(Rates(), Rates())))
    assert page.count("last 2 s, peak 0 B/s") == 2


def test_numbers_are_for_people() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1536, 1 << 30, 1 << 50)] == [
        *("0 B", "1023 B", "1.5 KiB", "1.0 GiB", "1024.0 TiB")
    ]
    assert [human_count(n) for n in (0, 0.25, 3.0, 12.7, 1234567)] == [
        *("0", "0.2", "3", "13", "1,234,567")
    ]
    assert [human_duration(s) for s in (0, 59.9, 3600, 93784)] == [
        *("0 s", "59 s", "1 h 0 min", "1 d 2 h")
    ]
