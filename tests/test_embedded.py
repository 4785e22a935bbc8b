"""A broker inside the process: starts at once, serves real clients, leaves nothing behind."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import chronik
from chronik.embedded import EmbeddedBroker, embedded
from chronik.model.configs import ConfigError
from chronik.storage.data_dir import DataDirError
from chronik.storage.kernel_sync import KernelSync


def produce(broker: EmbeddedBroker, topic: str, *values: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(20) == 0
    assert failures == [None] * len(values)


def consume(broker: EmbeddedBroker, topic: str, count: int) -> list[str]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 20)
        assert messages, "no message in 20 seconds"
        found += [(message.value() or b"").decode() for message in messages]
    consumer.close()
    return found


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2):
        return True
    return False


def test_import_of_chronik_loads_no_broker() -> None:
    code = (
        "import sys, chronik, chronik.testing;"
        "print([m for m in ('asyncio', 'uvloop', 'pyarrow', 'chronik.node') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert "chronik.node" not in done.stdout
    assert "uvloop" not in done.stdout
    assert "pyarrow" not in done.stdout


def test_a_fresh_process_can_say_chronik_dot_embedded_twice() -> None:
    code = (
        "import chronik\n"
        "for _ in range(2):\n"
        "    with chronik.embedded() as broker:\n"
        "        print(broker.bootstrap)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 2


def test_it_listens_inside_the_block_only() -> None:
    with chronik.embedded() as broker:
        assert broker.bootstrap == f"127.0.0.1:{broker.port}"
        assert answers(broker.port)
    assert not answers(broker.port)


def test_nothing_is_left_behind() -> None:
    with embedded():
        pass  # the first one opens what a process keeps: libuv's pipe for signals
    threads = set(threading.enumerate())
    files = len(os.listdir("/proc/self/fd"))
    with embedded() as broker:
        assert broker.data_dir.is_dir()
        assert broker.data_dir.parent == Path(tempfile.gettempdir())
    assert not broker.data_dir.exists()
    assert set(threading.enumerate()) <= threads
    assert len(os.listdir("/proc/self/fd")) <= files


def test_an_error_in_the_block_stops_the_broker_and_is_the_one_that_is_raised() -> None:
    ports = []

    def fail() -> None:
        with embedded() as broker:
            ports.append(broker.port)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not answers(ports[0])


def test_several_at_once_are_different_brokers() -> None:
    with embedded() as one, embedded() as other:
        assert one.port != other.port
        assert one.data_dir != other.data_dir
        assert answers(one.port)
    assert not answers(one.port)


def test_unknown_configs_are_refused_before_anything_starts() -> None:
    with (
        pytest.raises(ConfigError, match=r"num\.partition"),
        embedded(configs={"num.partition": 3}),
    ):
        pass


def test_a_port_in_use_is_raised_in_the_caller() -> None:
    threads = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="is taken"), embedded(port=taken.getsockname()[1]):
            pass
    assert set(threading.enumerate()) <= threads


def test_a_data_dir_in_use_is_raised_in_the_caller(tmp_path: Path) -> None:
    with (
        embedded(data_dir=tmp_path),
        pytest.raises(DataDirError, match="in use"),
        embedded(data_dir=tmp_path),
    ):
        pass


@pytest.mark.integration
def test_a_given_data_dir_keeps_its_records(tmp_path: Path) -> None:
    with embedded(data_dir=tmp_path) as broker:
        assert broker.data_dir == tmp_path
        produce(broker, "kept", "a", "b")
    with embedded(data_dir=tmp_path) as broker:
        assert consume(broker, "kept", 2) == ["a", "b"]


@pytest.mark.integration
@pytest.mark.parametrize("by_kernel", [True, False])
def test_synced_records_are_there_again(
    by_kernel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the kernel syncs real files by itself, or threads have to."""
    found = KernelSync.open()
    if found is None:
        pytest.skip("this kernel has no AIO")
    found.close()
    submit, taken = KernelSync.submit, 0

    def counted(kernel: KernelSync, files: Sequence[tuple[int, int]]) -> int:
        nonlocal taken
        count = submit(kernel, files) if by_kernel else 0
        taken += count
        return count

    monkeypatch.setattr(KernelSync, "submit", counted)
    values = [f"value-{n}" for n in range(20)]
    with embedded(data_dir=tmp_path, durability="fsync") as broker:
        for first in range(0, 20, 5):
            produce(broker, "synced", *values[first : first + 5])
        assert (taken > 2) is by_kernel, "the first write makes the file"
    with embedded(data_dir=tmp_path, durability="fsync") as broker:
        assert consume(broker, "synced", 20) == values


@pytest.mark.integration
def test_configs_reach_the_broker() -> None:
    from confluent_kafka.admin import AdminClient

    with embedded(configs={"num.partitions": 3, "auto.create.topics.enable": True}) as broker:
        produce(broker, "spread", "x")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        assert len(admin.list_topics(timeout=20).topics["spread"].partitions) == 3


@pytest.mark.integration
def test_traces_are_written_where_asked(tmp_path: Path) -> None:
    with embedded(data_dir=tmp_path, trace="files") as broker:
        produce(broker, "traced", "x")
    assert list((tmp_path / "traces").iterdir())


@pytest.mark.integration
def test_the_fixture_serves_a_client(chronik_broker: EmbeddedBroker) -> None:
    produce(chronik_broker, "fixture", "hello")
    assert consume(chronik_broker, "fixture", 1) == ["hello"]


def test_who_leads_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "chronik.broker.controller"), embedded():
        pass
    told = [one.getMessage() for one in caplog.records if "leads the metadata" in one.getMessage()]
    assert len(told) == 1
