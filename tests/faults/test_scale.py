"""Many partitions, many connections: what a start, a stop and an idle client cost."""

import contextlib
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.nodes import (
    Client,
    cpu_seconds,
    fetch_request,
    frame_of,
    is_soak,
    resident_bytes,
    run,
)
from tests.servers import HOST, Chronik

from chronik.model.limits import IN_FLIGHT_BYTES_MAX, REQUEST_BYTES_MAX

pytestmark = pytest.mark.integration

MIB = 2**20


async def fill(port: int, partitions: int) -> None:
    """One record in each, so that each has a directory, a file and a place in the checkpoints."""
    client = await Client.connect(port)
    assert await client.create("wide", partitions) == 0
    for partition in range(partitions):
        answer = await client.produce("wide", b"%d" % partition, partition=partition)
        assert answer.error_code == 0
    await client.close()


async def look(port: int, partitions: int) -> None:
    client = await Client.connect(port)
    for partition in range(0, partitions, max(1, partitions // 50)):
        answer = await client.fetch("wide", partition=partition)
        assert answer.high_watermark == 1
        assert b"%d" % partition in answer.records
    await client.close()


def seconds(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def many_partitions(
    directory: Path, partitions: int, start_seconds_max: float, bytes_max: int
) -> None:
    server = Chronik(directory)
    server.start()
    empty = resident_bytes(server.pid)
    try:
        run(lambda: fill(server.port, partitions), 300)
        stopped, started = seconds(server.stop), seconds(server.start)
        memory = resident_bytes(server.pid)
        run(lambda: look(server.port, partitions), 60)
        assert "the last stop was not clean" not in server.log_path().read_text()
        server.kill()
        recovered = seconds(server.start)
        run(lambda: look(server.port, partitions), 60)
        print(  # noqa: T201
            f"{partitions} partitions: stop {stopped:.1f} s, start {started:.1f} s, after kill -9 "
            f"{recovered:.1f} s, {memory / MIB:.0f} MiB "
            f"({(memory - empty) / partitions / 1024:.1f} KiB each)"
        )
        assert started < start_seconds_max
        assert memory < bytes_max
    finally:
        if server.running():
            server.kill()


def test_fm60_a_thousand_partitions_start_quickly(tmp_path: Path) -> None:
    many_partitions(tmp_path, 1000, 15, 200 * MIB)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_fm60_ten_thousand_partitions_fit(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not is_soak(request.config):
        pytest.skip("a long run: --soak")
    many_partitions(tmp_path, 10_000, 10, 400 * MIB)


def idle_connections(directory: Path, count: int, bytes_each_max: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 500), hard))
    server = Chronik(directory)
    server.start()

    async def create() -> None:
        client = await Client.connect(server.port)
        await client.create("t")
        await client.fetch("t")
        await client.close()

    try:
        run(create)
        before = resident_bytes(server.pid)
        poll = frame_of(fetch_request("t", wait_ms=60_000), 12)
        with contextlib.ExitStack() as stack:
            for number in range(count):
                one = stack.enter_context(socket.create_connection((HOST, server.port)))
                if number % 2:
                    one.sendall(len(poll).to_bytes(4, "big") + poll)
            time.sleep(0.5)
            memory = (resident_bytes(server.pid) - before) / count
            busy = cpu_seconds(server.pid)
            time.sleep(2)
            busy = cpu_seconds(server.pid) - busy
            print(  # noqa: T201
                f"{count} idle connections: {memory / 1024:.1f} KiB each, {busy / 2:.1%} of a core"
            )
            assert memory < bytes_each_max
            assert busy < 0.3, "idle clients cost nothing"
        run(create)
    finally:
        assert server.running()
        server.kill()


def test_fm59_five_hundred_idle_connections_cost_nothing(tmp_path: Path) -> None:
    idle_connections(tmp_path, 500, 32 * 1024)


@pytest.mark.soak
def test_fm59_two_thousand_idle_connections_cost_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not is_soak(request.config):
        pytest.skip("a long run: --soak")
    idle_connections(tmp_path, 2000, 32 * 1024)


def test_fm17_unfinished_requests_of_many_clients_are_bounded(tmp_path: Path) -> None:
    """Each announces the largest request there is and sends a little of it, ever so slowly."""
    count, begun = 400, 32 * 1024
    server = Chronik(tmp_path)
    server.start()

    async def serves(offset: int) -> None:
        client = await Client.connect(server.port)
        await client.create("t")
        assert (await client.produce("t", b"%d" % offset)).error_code == 0
        assert (await client.fetch("t")).high_watermark == offset + 1
        await client.close()

    try:
        run(lambda: serves(0))
        before = resident_bytes(server.pid)
        with contextlib.ExitStack() as stack:
            slow = [
                stack.enter_context(socket.create_connection((HOST, server.port)))
                for _ in range(count)
            ]
            for one in slow:
                one.sendall(REQUEST_BYTES_MAX.to_bytes(4, "big") + bytes(begun))
            for one in slow:
                one.sendall(b"x")
            run(lambda: serves(1))
            memory = resident_bytes(server.pid) - before
            print(f"{count} unfinished requests: {memory / MIB:.0f} MiB")  # noqa: T201
            assert memory < IN_FLIGHT_BYTES_MAX // 4 + count * 4 * begun
        run(lambda: serves(2))
    finally:
        server.stop()
