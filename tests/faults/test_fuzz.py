"""Spoiled requests and garbage: the node stays up, keeps its memory, and serves the others."""

import asyncio
import contextlib
import gc
import logging
import os
import random
import socket
import struct
import sys
from pathlib import Path

import pytest
from tests.faults.frames import every_frame, spoiled
from tests.faults.nodes import Client, FaultyFiles, node_on, resident_bytes, run, wait_until
from tests.net.kit import FakeListener, FakeTransport, feed, framed
from tests.rounds import Rounds
from tests.servers import HOST, Chronik

from chronik.broker.lifecycle import WATCH_S
from chronik.broker.peering import PeerApi, PeerUnavailableError
from chronik.broker.sessions import Sessions
from chronik.model.errors import ErrorCode
from chronik.net.connection import Connection
from chronik.net.peers import PeerLinks
from chronik.node.node import Node
from chronik.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from chronik.wire.messages.unregister_broker import UnregisterBrokerRequest

pytestmark = pytest.mark.integration

SHORT, LONG = 20_000, 100_000
SEEDS = range(2, 12)
"""A million frames in ten runs."""
UNREGISTER_BROKER = b"\x00\x40"
"""Left out: it does what it says, and the node needs a moment to register again."""
GROWTH_BYTES_MAX = 60 * 1024 * 1024
FRAMES_PER_ROUND = 20_000
SOCKETS_IDLE_MAX = 8
"""What a node listens on, and its event loop's own."""
LINGER_S_MAX = 30.0
"""Frames may ask for a wait; what outlives its connection ends by then."""
RUDE_SHORT, RUDE_LONG = 600, 10_000
"""Connections on real sockets."""


class Attacker:
    """Clients without sockets; one that is hung up on comes back with a new connection."""

    def __init__(self, node: Node) -> None:
        self._listener = FakeListener(node._listener.router, size=64 * 1024)
        self._listener.connections_max = 10**9
        self._current: tuple[Connection, FakeTransport] | None = None
        self.connections = 0

    def send(self, frame: bytes) -> None:
        if frame.startswith(UNREGISTER_BROKER):
            return
        if self._current is None:
            self._current = self._listener.connect()
            self.connections += 1
        connection, transport = self._current
        feed(connection, framed(frame))
        transport.written.clear()
        if transport.aborted:
            self.leave()

    def leave(self) -> None:
        if self._current is not None:
            self._current[0].connection_lost(None)
            self._current = None

    @property
    def bytes_held(self) -> int:
        return self._listener.budget.used

    @property
    def open_connections(self) -> int:
        return len(self._listener.connections)


class Held:
    """What a process holds that it could leak."""

    def __init__(self) -> None:
        gc.collect()
        self.memory_bytes = resident_bytes(os.getpid())
        self.files = len(os.listdir("/proc/self/fd"))
        self.tasks = len(asyncio.all_tasks())

    def __str__(self) -> str:
        return f"{self.memory_bytes / 2**20:.0f} MiB, {self.files} files, {self.tasks} tasks"


class Healthy:
    """A client that must be served whatever else goes on."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._produced = 0

    async def check(self) -> None:
        answer = await self._client.produce("healthy", b"%d" % self._produced)
        assert (answer.error_code, answer.base_offset) == (0, self._produced)
        self._produced += 1
        fetched = await self._client.fetch("healthy", self._produced - 1)
        assert fetched.high_watermark == self._produced


async def attack(node: Node, count: int, seed: int) -> None:
    client = await Client.connect(node.port)
    try:
        await attack_beside(client, node, count, seed)
    finally:
        await client.close()


async def attack_beside(client: Client, node: Node, count: int, seed: int) -> None:
    rng = random.Random(seed)
    await client.create("healthy")
    await client.create("fuzzed", 2)
    healthy, attacker = Healthy(client), Attacker(node)
    frames = every_frame(rng)
    rounds = Rounds("frames", count // FRAMES_PER_ROUND, seed)
    await healthy.check()
    first, half = Held(), Held()
    for number in range(1, count + 1):
        if rng.random() < 0.03:
            attacker.send(rng.randbytes(rng.randint(1, 200)))
        else:
            attacker.send(spoiled(rng.choice(frames), frames, rng))
        if number % 200 == 0:
            attacker.leave()
        if number % 50 == 0:
            await asyncio.sleep(0)
        if number % 1000 == 0:
            await healthy.check()
        if number == count // 2:
            half = Held()
        if number % FRAMES_PER_ROUND == 0:
            rounds.told(f"{number} frames", connections=attacker.connections, holds=Held())
    attacker.leave()
    async with asyncio.timeout(LINGER_S_MAX):  # what waits for a disk or a topic ends by itself
        while len(asyncio.all_tasks()) > first.tasks:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
    await healthy.check()
    last = Held()
    growth = last.memory_bytes - half.memory_bytes
    rounds.summary(
        frames=count,
        connections=attacker.connections,
        topics=len(node.broker.controller.image.topics),
        before=f"({first})",
        half=f"({half})",
        after=f"({last})",
    )
    assert attacker.bytes_held == 0
    assert attacker.open_connections == 0
    assert len(node._listener.connections) == 1, "the healthy client's"
    assert growth < GROWTH_BYTES_MAX


def fuzz(tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int, seed: int) -> None:
    in_callbacks: list[str] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: in_callbacks.append(repr(context)))
        async with node_on(FaultyFiles(), str(tmp_path), durability="os") as node:
            await attack(node, count, seed)

    with caplog.at_level(logging.ERROR):
        run(scenario, 3000)
    assert in_callbacks == []
    unexpected = {
        f"{record.exc_info[0].__name__}: {record.exc_info[1]} in {last_line(record)}"
        for record in caplog.records
        if record.exc_info and record.exc_info[0] is not None
    }
    assert unexpected == set()


def last_line(record: logging.LogRecord) -> str:
    """Where in the code an unexpected error came from."""
    assert record.exc_info is not None
    trace = record.exc_info[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def test_fm31_spoiled_frames_never_meet_an_unexpected_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fuzz(tmp_path, caplog, SHORT, seed=int(os.environ.get("CHRONIK_SEED", "1")))


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", SEEDS)
def test_fm31_a_million_spoiled_frames(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    fuzz(tmp_path, caplog, LONG, seed)


def test_a_live_node_that_is_unregistered_registers_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_on(FaultyFiles(), str(tmp_path), durability="os") as node:
            client = await Client.connect(node.port)
            await client.create("t")
            assert (await client.ask(UnregisterBrokerRequest(broker_id=1))).error_code == 0
            while (await client.produce("t", b"v")).error_code:  # noqa: ASYNC110 - as a client
                await asyncio.sleep(0.05)
            await client.close()

    run(scenario)


def test_a_node_too_busy_to_hear_its_own_report_is_not_fenced_by_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_on(FaultyFiles(), str(tmp_path), durability="os") as node:
            node.broker.controller.sessions = Sessions(timeout_s=-1)
            client = await Client.connect(node.port)
            await client.create("t")
            for _ in range(4):
                await asyncio.sleep(WATCH_S)
                assert (await client.produce("t", b"v")).error_code == 0
            await client.close()

    run(scenario)


@pytest.mark.parametrize(
    ("host", "port"), [("a\0b", 9093), ("", 9093), ("x" * 300, 9093), ("a b", 9093), ("a", 0)]
)
def test_a_voter_at_an_impossible_address_is_refused(tmp_path: Path, host: str, port: int) -> None:
    async def scenario() -> None:
        async with node_on(FaultyFiles(), str(tmp_path), durability="os") as node:
            client = await Client.connect(node.port)
            listeners = [Listener(name="PLAINTEXT", host=host, port=port)]
            asked = AddRaftVoterRequest(
                cluster_id=None, timeout_ms=1000, voter_id=7, listeners=listeners
            )
            assert (await client.ask(asked)).error_code == ErrorCode.INVALID_REQUEST
            await client.create("t")
            assert (await client.produce("t", b"v")).error_code == 0
            await client.close()

    run(scenario)


def test_a_peer_with_no_hosts_name_is_only_unavailable() -> None:
    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            links = PeerLinks(tasks)
            for name in ("a\0b", ".", "x" * 300):
                links.set_address(7, name, 9093)
                with pytest.raises(PeerUnavailableError):
                    await links.call(7, PeerApi.RAFT, 0, [b""], 1.0)
            links.close()

    run(scenario)


def test_fm17_garbage_on_real_sockets_leaves_the_node_unharmed(tmp_path: Path) -> None:
    garbage(tmp_path, RUDE_SHORT, seed=3)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_fm17_ten_thousand_rude_connections(tmp_path: Path) -> None:
    garbage(tmp_path, RUDE_LONG, seed=4)


def garbage(directory: Path, connections: int, seed: int) -> None:
    """Garbage on real sockets: neither memory nor sockets are left behind."""
    rng = random.Random(seed)
    frames = every_frame(rng)
    server = Chronik(directory)
    server.start()
    rounds = Rounds("rude", 4, seed)
    try:
        files, half = open_files(server.pid), 0
        for number in range(1, connections + 1):
            harass(server.port, rng, frames)
            if number == connections // 2:
                half = resident_bytes(server.pid)
            if number % (connections // 4) == 0:
                memory = resident_bytes(server.pid) / 2**20
                rounds.told(f"{number} connections", holds=f"{memory:.0f} MiB")
        growth = resident_bytes(server.pid) - half
        assert growth < GROWTH_BYTES_MAX
        logs = len(list((directory / "data").rglob("*.log")))

        async def use() -> None:
            client = await Client.connect(server.port)
            assert await client.create("healthy") == 0
            assert (await client.produce("healthy", b"v")).base_offset == 0
            await client.close()

        run(use)
        # Of each log that the garbage made, a few files are open; of its connections, none.
        wait_until(lambda: open_sockets(server.pid) <= SOCKETS_IDLE_MAX)
        rounds.summary(
            connections=connections,
            files=f"{files} before, {open_files(server.pid)} after with {logs} logs",
            growth=f"{growth / 2**20:+.1f} MiB in the second half",
        )
        assert "Traceback" not in server.log_path().read_text()
    finally:
        assert server.running()
        server.kill()


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def open_sockets(pid: int) -> int:
    """Sockets of a process, listening ones too."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(FileNotFoundError):
        return sum(
            os.readlink(f"{folder}/{one}").startswith("socket:") for one in os.listdir(folder)
        )
    return sys.maxsize


def harass(port: int, rng: random.Random, frames: list[bytes]) -> None:
    """One rude connection."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((HOST, port), timeout=5) as connection,
    ):
        match rng.randrange(5):
            case 0:
                connection.sendall(rng.randbytes(rng.randint(1, 3000)))
            case 1:
                connection.sendall(struct.pack(">i", rng.choice([-1, 0, 2**31 - 1, 100 * 2**20])))
            case 2:
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            case 3:
                connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20)
            case _:
                batch = [spoiled(rng.choice(frames), frames, rng) for _ in range(20)]
                connection.sendall(framed(*batch))
                connection.settimeout(0.02)
                connection.recv(1 << 16)
