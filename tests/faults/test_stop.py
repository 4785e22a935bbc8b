"""SIGTERM in every situation, and starts that cannot work: quick, clean, and clearly said."""

import asyncio
import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.nodes import (
    Client,
    FaultyFiles,
    cpu_seconds,
    fetch_request,
    frame_of,
    node_on,
    produce_request,
    run,
    wait_until,
)
from tests.servers import HOST, Chronik

from chronik.broker.partition import Partition
from chronik.handlers.call import Call, Peer
from chronik.handlers.router import Router
from chronik.handlers.table import TABLE
from chronik.lab.cluster import free_ports
from chronik.model.limits import SYNC_TOGETHER_LOGS_MIN
from chronik.storage.volume import open_volume
from chronik.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.integration

STOP_SECONDS_MAX = 1.0
BUSY_FACTOR = 3
"""A shared machine may be slower than the promise; the promise itself is printed."""


@pytest.fixture(params=["fsync", "os"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Chronik]:
    server = Chronik(tmp_path, durability=request.param)
    server.start()
    yield server
    if server.running():
        server.kill()


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


class Load:
    """Threads that send the same bytes again and again and throw the answers away."""

    def __init__(self, port: int, data: Callable[[int], bytes], connections: int) -> None:
        self._data = data
        self._stopped = threading.Event()
        self.answered = 0
        self._threads = [
            threading.Thread(target=self._run, args=(port, n)) for n in range(connections)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, port: int, number: int) -> None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((HOST, port), timeout=5) as connection,
        ):
            for round_number in range(1_000_000):
                if self._stopped.is_set():
                    return
                connection.sendall(self._data(number * 1_000_000 + round_number))
                if not connection.recv(65536):
                    return
                self.answered += 1

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()


def terminate(server: Chronik) -> float:
    """Seconds from SIGTERM to the end of the process; its exit code must be 0."""
    process = server._process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    took = wait_until(lambda: process.poll() is not None)
    assert process.returncode == 0, server.log_tail()
    print(f"stopped in {took * 1000:.0f} ms")  # noqa: T201
    return took


def expect_clean(server: Chronik) -> None:
    """The port is free, nothing went wrong, and the next start need not recover."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as every server does
        probe.bind((HOST, server.port))
    assert "Traceback" not in server.log_path().read_text()
    server.start()
    assert "the last stop was not clean" not in server.log_path().read_text()


def create(server: Chronik, topic: str, partitions: int = 1) -> None:
    async def scenario() -> None:
        client = await Client.connect(server.port)
        assert await client.create(topic, partitions) == 0
        await client.close()

    run(scenario)


def test_fm59_sigterm_under_load_ends_within_a_second(server: Chronik) -> None:
    create(server, "t", 4)
    pipelined = b"".join(
        framed(frame_of(produce_request("t", b"x" * 1000, partition=n % 4, acks=1), 9))
        for n in range(20)
    )
    load = Load(server.port, lambda _: pipelined, 8)
    wait_until(lambda: load.answered > 100)
    took = terminate(server)
    load.stop()
    assert took < STOP_SECONDS_MAX * BUSY_FACTOR
    expect_clean(server)


def test_fm59_sigterm_while_topics_are_created_ends(server: Chronik) -> None:
    def data(number: int) -> bytes:
        topic = CreatableTopic(name=f"t{number}", num_partitions=3, replication_factor=1)
        return framed(frame_of(CreateTopicsRequest(topics=[topic]), 7)) * 5

    load = Load(server.port, data, 6)
    wait_until(lambda: load.answered > 30)
    took = terminate(server)
    load.stop()
    assert took < STOP_SECONDS_MAX * BUSY_FACTOR
    expect_clean(server)


def test_fm59_sigterm_with_idle_long_polls_ends(server: Chronik) -> None:
    create(server, "t")
    poll = framed(frame_of(fetch_request("t", wait_ms=60_000), 12))
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            connection = stack.enter_context(socket.create_connection((HOST, server.port)))
            connection.sendall(poll)
        for _ in range(50):
            stack.enter_context(socket.create_connection((HOST, server.port)))
        took = terminate(server)
    assert took < STOP_SECONDS_MAX * BUSY_FACTOR
    expect_clean(server)


def test_fm59_closed_sockets_cost_no_cpu(server: Chronik) -> None:
    create(server, "t")
    poll = framed(frame_of(fetch_request("t", wait_ms=60_000), 12))
    for n in range(200):
        with socket.create_connection((HOST, server.port)) as connection:
            connection.sendall(poll if n % 2 else poll[:7])
    time.sleep(0.2)
    before = cpu_seconds(server.pid)
    time.sleep(1.0)
    assert cpu_seconds(server.pid) - before < 0.2


def test_fm59_a_long_poll_ends_with_its_connection(tmp_path: Path) -> None:
    """Else a client that comes and goes leaves an hour of waiting behind each time."""

    async def scenario() -> None:
        async with node_on(FaultyFiles(), str(tmp_path), durability="os") as node:
            client = await Client.connect(node.port)
            await client.create("t")
            partition = node.broker.partitions.by_name("t", 0)
            assert partition is not None
            for _ in range(20):
                leaver = await Client.connect(node.port)
                leaver.send(fetch_request("t", wait_ms=3_600_000), 12)
                while not partition.fetch_waiters:  # noqa: ASYNC110 - it is on its way
                    await asyncio.sleep(0.001)
                await leaver.close()
                while partition.fetch_waiters:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            await client.close()

    run(scenario)


async def turns_pass() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_fm59_a_fetch_whose_client_left_before_its_turn_is_not_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            node_on(FaultyFiles(), str(tmp_path), durability="os") as node,
            asyncio.TaskGroup() as tasks,
        ):
            client = await Client.connect(node.port)
            await client.create("t")
            partition = node.broker.partitions.by_name("t", 0)
            assert partition is not None
            router = Router(node.broker, TABLE, tasks)
            hung_up: list[bool] = []
            stays, leaves, last = (
                Call(
                    bytearray(frame_of(fetch_request("t", wait_ms=3_600_000), 12)),
                    Peer("", 0, "", 0),
                    node.broker.clock.monotonic_ns(),
                    lambda call: None,
                    lambda: hung_up.append(True),
                )
                for _ in range(3)
            )
            node.broker.turns.soon(lambda: None)
            router.route(stays)
            router.route(leaves)
            assert not partition.fetch_waiters, "others were first"
            leaves.abandoned = True
            await turns_pass()
            assert len(partition.fetch_waiters) == 1
            node.broker.turns.soon(lambda: None)
            router.route(last)
            router.close()
            await turns_pass()
            assert hung_up == [True]
            assert stays.given_up is not None
            stays.given_up()
            await client.close()

    run(scenario)


def test_what_was_acked_before_sigterm_is_there_afterwards(server: Chronik) -> None:
    create(server, "t")

    async def produce() -> int:
        client = await Client.connect(server.port)
        acked = 0
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(client.close)
            stack.enter_context(contextlib.suppress(OSError, asyncio.IncompleteReadError))
            while True:
                answer = await client.produce("t", b"%08d" % acked)
                if answer.error_code:
                    break
                assert answer.base_offset == acked
                acked += 1
                if acked == 200:
                    assert server._process is not None
                    server._process.send_signal(signal.SIGTERM)
        return acked

    acked = run(produce)
    wait_until(lambda: not server.running())
    server.start()

    async def check() -> None:
        client = await Client.connect(server.port)
        assert acked <= (await client.fetch("t")).high_watermark <= acked + 1
        assert b"%08d" % (acked - 1) in (await client.fetch("t", acked - 1)).records
        await client.close()

    run(check)


# ---- many logs that nobody has synced


MANY = SYNC_TOGETHER_LOGS_MIN + 4


class OneBadLog(FaultyFiles):
    """Once `is_bad`, one log cannot be synced."""

    __slots__ = ("bad", "is_bad")

    def __init__(self) -> None:
        super().__init__()
        self.bad: set[int] = set()
        self.is_bad = False

    def create(self, path: str) -> int:
        file = super().create(path)
        self.bad.discard(file)
        if "/t-7/" in path and path.endswith(".log"):
            self.bad.add(file)
        return file

    def fdatasync(self, file: int) -> None:
        if self.is_bad and file in self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fdatasync(file)


async def stop_with_many_logs(files: FaultyFiles, data: Path, *failing: str) -> bool:
    """True where it called its logs clean."""
    async with node_on(files, str(data), durability="os") as node:
        client = await Client.connect(node.port)
        assert await client.create("t", MANY) == 0
        for partition in range(MANY):
            client.send(produce_request("t", b"%d" % partition, partition=partition), 9)
        for _ in range(MANY):
            await client.receive(produce_request("t"), 9)
        await client.close()
        files.errors |= dict.fromkeys(failing, errno.EIO)
        if isinstance(files, OneBadLog):
            files.is_bad = True
        files.calls.clear()
    return (data / "clean-shutdown").exists()


def skip_without_volume(path: Path) -> None:
    found = open_volume(str(path))
    if found is None:
        pytest.skip("each file is synced on its own here: an older kernel, or not ext4")
    found.close()


def test_many_logs_are_synced_by_one_call(tmp_path: Path) -> None:
    skip_without_volume(tmp_path)
    files = FaultyFiles()
    assert run(lambda: stop_with_many_logs(files, tmp_path))
    assert files.calls["syncfs"] == 1
    assert files.calls["fdatasync"] < 10, "the files of the stop itself"


def test_many_logs_are_synced_one_by_one_where_the_call_fails(tmp_path: Path) -> None:
    skip_without_volume(tmp_path)
    files = FaultyFiles()
    assert run(lambda: stop_with_many_logs(files, tmp_path, "syncfs"))
    assert files.calls["fdatasync"] >= MANY


def test_fm63_one_log_of_many_that_is_not_synced_makes_the_stop_unclean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = OneBadLog()
    assert not run(lambda: stop_with_many_logs(files, tmp_path, "syncfs"))
    assert "no clean stop" in caplog.text


# ---- starts that cannot work


def start(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chronik", "up", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


def expect_clear(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode not in {0, -signal.SIGSEGV}
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_second_node_on_one_data_directory_is_refused(server: Chronik) -> None:
    port = str(free_ports(1))
    done = start("--port", port, "--data", str(server.directory / "data"))
    expect_clear(done, "Error:", str(server.directory / "data"))
    assert server.running()
    create(server, "still-alive")


def test_a_taken_port_is_named(server: Chronik, tmp_path: Path) -> None:
    done = start("--port", str(server.port), "--data", str(tmp_path / "other"))
    expect_clear(done, f"port {server.port}", "--port")


def test_a_taken_status_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = start("--port", "0", "--data", str(tmp_path), "--http-port", port)
    expect_clear(done, port)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--port", "x"), "--port"),
        (("--port", "70000"), "--port"),
        (("--durability", "maybe"), "--durability"),
        (("--set", "nonsense"), "KEY=VALUE"),
        (("--set", "no.such.config=1"), "no.such.config"),
        (("--set", "num.partition=3"), "did you mean 'num.partitions'?"),
        (("--set", "num.partitions=many"), "num.partitions"),
        (("--host", "0.0.0.0"), "--advertise"),
        (("--advertise", "host:port"), "port"),
        (("--no-such-option",), "--no-such-option"),
        (("--set", "node.id=3"), "an option of its own"),
        (("--peers", "1@somewhere"), "ID@HOST:PORT"),
        (("--peers", "2@127.0.0.1:9192"), "node 1, this one, is not among [2]"),
        (("--peers", "1@127.0.0.1:9192,1@127.0.0.1:9193"), "ids are unique"),
        (("--nodes", "3", "--port", "65532"), "choose one up to 65530"),
    ],
)
def test_garbage_options_are_named(tmp_path: Path, options: tuple[str, ...], word: str) -> None:
    done = start("--data", str(tmp_path / "data"), *options)
    expect_clear(done, word)
    assert not (tmp_path / "data").exists(), "nothing was opened"


def test_an_unusable_data_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    expect_clear(start("--port", "0", "--data", str(tmp_path / "file")), str(tmp_path / "file"))


def test_a_data_directory_with_something_else_in_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "topics").write_text("no directory")
    expect_clear(start("--port", "0", "--data", str(tmp_path)), str(tmp_path / "topics"))


def test_why_a_node_of_a_cluster_did_not_start_is_said(tmp_path: Path) -> None:
    """Its own log is where nobody looks first."""
    port = free_ports(6)
    (tmp_path / "node-2" / "topics").mkdir(parents=True)
    (tmp_path / "node-2" / "metadata").write_text("no directory")
    done = start("--nodes", "3", "--port", str(port), "--data", str(tmp_path))
    expect_clear(done, "Node 2 ended", "Error: cannot use", str(tmp_path / "node-2" / "metadata"))


def test_a_server_on_a_port_of_a_cluster_is_not_taken_for_its_node(
    server: Chronik, tmp_path: Path
) -> None:
    port = str(server.port - 1)
    done = start("--nodes", "3", "--port", port, "--data", str(tmp_path / "data"))
    expect_clear(done, "ended with code 1", "is taken")
    assert "Chronik cluster of" not in done.stderr


def test_an_unusable_data_directory_of_a_cluster_is_named(tmp_path: Path) -> None:
    (tmp_path / "node-2").write_text("no directory")
    done = start("--nodes", "3", "--port", str(free_ports(6)), "--data", str(tmp_path))
    expect_clear(done, str(tmp_path / "node-2"))


def test_another_nodes_data_directory_is_refused(server: Chronik) -> None:
    terminate(server)
    done = start("--port", "0", "--node-id", "7", "--data", str(server.directory / "data"))
    expect_clear(done, "belongs to node 1")


def test_a_host_that_is_not_here_is_named(tmp_path: Path) -> None:
    done = start("--host", "192.0.2.1", "--port", "0", "--data", str(tmp_path / "data"))
    expect_clear(done, "192.0.2.1", "this machine has no such address")
    done = start("--host", "no.such.host.invalid", "--port", "0", "--data", str(tmp_path / "data"))
    expect_clear(done, "no.such.host.invalid", "no such host")


# ---- files that belong to somebody else


PR_CAPBSET_DROP, CAPABILITIES = 24, range(4)
"""What lets root read and write the files of others: CAP_CHOWN to CAP_FOWNER."""


def as_an_ordinary_user() -> None:
    """In the child, before it becomes the node: root, too, has to keep to the modes of files."""
    libc = ctypes.CDLL(None)
    for capability in CAPABILITIES:
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def start_ordinary(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chronik", "up", "--port", "0", *options]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        preexec_fn=as_an_ordinary_user,
    )


def test_a_data_directory_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o500)
    for directory in (data, data / "new"):
        done = start_ordinary("--data", str(directory))
        expect_clear(done, "Error:", str(directory), "Permission denied", "--data")


def test_a_file_that_is_another_users_is_named(server: Chronik) -> None:
    """As after one start as root: the directory is fine, a file in it is not."""
    create(server, "t")
    terminate(server)
    data = server.directory / "data"
    (first, *_) = sorted(one for one in (data / "metadata").iterdir() if one.is_file())
    first.chmod(0o000)
    done = start_ordinary("--data", str(data))
    expect_clear(done, f"Error: {first}: Permission denied", "are this user's", str(data))


def test_a_node_whose_invariants_are_broken_ends_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Serving on could acknowledge what is not there. The next start reads the disk."""

    def broken(*_: object) -> None:
        raise RuntimeError("the log is not what it should be")

    async def scenario() -> None:
        async with node_on(FaultyFiles(), str(tmp_path)) as node:
            client = await Client.connect(node.port)
            try:
                assert await client.create("orders") == 0
                assert (await client.produce("orders", b"before")).base_offset == 0
                monkeypatch.setattr(Partition, "written", broken)
                answer = await client.produce("orders", b"never acknowledged")
                raise AssertionError(answer)
            finally:
                await client.close()

    async def after() -> None:
        async with node_on(FaultyFiles(), str(tmp_path)) as node:
            client = await Client.connect(node.port)
            assert b"before" in (await client.fetch("orders")).records
            await client.close()

    with pytest.raises(ExceptionGroup) as raised:
        run(scenario)
    assert raised.group_contains(RuntimeError, match="the log is not what it should be")
    monkeypatch.undo()
    run(after)
