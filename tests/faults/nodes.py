"""Nodes to break: in this process on a disk with faults, or as child processes to be killed."""

import asyncio
import errno
import itertools
import os
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import pytest
from tests.clients.batches import Batch

from chronik.model.settings import NodeSettings
from chronik.node.node import Node
from chronik.storage.fs import RealFileSystem, Volume
from chronik.storage.volume import open_volume
from chronik.wire.apis import ADVERTISED, ApiKey
from chronik.wire.codec import decode, encode
from chronik.wire.headers import read_response_header, write_request_header
from chronik.wire.messages import create_topics, delete_records, delete_topics, fetch, produce
from chronik.wire.messages.metadata import MetadataRequest
from chronik.wire.records import Buffer
from chronik.wire.schema import Message

T = TypeVar("T")
SECONDS_MAX = 15.0


def is_soak(config: pytest.Config) -> bool:
    """True for the long runs: `pytest --soak`, or CHRONIK_SOAK=1."""
    return bool(config.getoption("--soak", default=False)) or "CHRONIK_SOAK" in os.environ


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS_MAX) -> float:
    """Polls; returns the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it did not happen in time"
        time.sleep(0.005)
    return time.monotonic() - began


def resident_bytes(pid: int) -> int:
    """Anonymous resident memory: mapped segment files do not count."""
    with open(f"/proc/{pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["RssAnon"].split()[0]) * 1024


def cpu_seconds(pid: int) -> float:
    """User and system time so far."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class FaultyFiles(RealFileSystem):
    """The real disk with faults by the name of the call: an errno, a delay, a closed gate."""

    __slots__ = ("calls", "delays", "errors", "gates", "match")

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}
        self.delays: dict[str, float] = {}
        self.gates: dict[str, threading.Event] = {}
        self.match = ""
        """Only paths that contain this are affected; calls on handles always are."""
        self.calls: Counter[str] = Counter()

    def hold(self, call: str) -> threading.Event:
        """Calls of that name wait until the event is set."""
        gate = self.gates[call] = threading.Event()
        return gate

    def heal(self) -> None:
        """A healthy disk again."""
        self.errors.clear()
        self.delays.clear()
        for gate in self.gates.values():
            gate.set()
        self.gates.clear()

    def _meet(self, call: str, path: str | None = None) -> None:
        self.calls[call] += 1
        if path is not None and self.match not in path:
            return
        if call in self.delays:
            time.sleep(self.delays[call])
        if call in self.gates:
            assert self.gates[call].wait(SECONDS_MAX), "nobody opened the gate"
        if call in self.errors:
            raise OSError(self.errors[call], os.strerror(self.errors[call]), path)

    def create(self, path: str) -> int:
        self._meet("create", path)
        return super().create(path)

    def pwritev(self, file: int, buffers: Sequence[Buffer], position: int) -> int:
        self._meet("pwritev")
        return super().pwritev(file, buffers, position)

    def fdatasync(self, file: int) -> None:
        self._meet("fdatasync")
        super().fdatasync(file)

    def rename(self, old: str, new: str) -> None:
        self._meet("rename", old)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._meet("unlink", path)
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._meet("mkdir", path)
        super().mkdir(path)

    def fsync_dir(self, path: str) -> None:
        self._meet("fsync_dir", path)
        super().fsync_dir(path)

    def open_volume(self, directory: str) -> Volume | None:
        real = open_volume(directory)
        return None if real is None else FaultyVolume(real, partial(self._meet, "syncfs"))


class FaultyVolume(NamedTuple):
    """The real one, behind whatever its file system meets."""

    real: Volume
    meet: Callable[[], None]

    def sync(self, paths: Sequence[str]) -> None:
        self.meet()
        self.real.sync(paths)

    def close(self) -> None:
        self.real.close()


DISK_FULL = {"pwritev": errno.ENOSPC, "create": errno.ENOSPC, "mkdir": errno.ENOSPC}
READ_ONLY = dict.fromkeys(("pwritev", "create", "mkdir", "rename", "unlink"), errno.EROFS)


@asynccontextmanager
async def node_on(files: FaultyFiles, data_dir: str, **settings: Any) -> AsyncIterator[Node]:
    """A node in this event loop, from its start to its stop."""
    async with asyncio.TaskGroup() as tasks:
        node = Node(NodeSettings(data_dir=data_dir, port=0, **settings), tasks, fs=files)
        try:
            await node.start()
            yield node
        finally:
            await node.stop()


def run(test: Callable[[], Coroutine[Any, Any, T]], seconds: float = SECONDS_MAX) -> T:
    """Runs the coroutine; one that hangs fails."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await test()

    return asyncio.run(limited())


class Client:
    """One connection; requests may be pipelined."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._lock = asyncio.Lock()

    @classmethod
    async def connect(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, request: Message, version: int | None = None) -> int:
        """Sends, does not wait."""
        version = newest(request) if version is None else version
        correlation_id = next(self._ids)
        self.send_frame(frame_of(request, version, correlation_id))
        return correlation_id

    def send_frame(self, frame: bytes) -> None:
        self._writer.write(struct.pack(">i", len(frame)) + frame)

    async def receive(self, request: Message, version: int | None = None) -> Any:
        """The next answer, read as one to `request`."""
        version = newest(request) if version is None else version
        frame = await self.receive_frame()
        _, body = read_response_header(request.API_KEY, version, frame)
        return decode(response_class(type(request)), version, frame, body)

    async def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def ask(self, request: Message, version: int | None = None) -> Any:
        async with self._lock:
            self.send(request, version)
            return await self.receive(request, version)

    async def close(self) -> None:
        self._writer.close()

    # -- what tests ask for often

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> int:
        wanted = create_topics.CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        response = await self.ask(create_topics.CreateTopicsRequest(topics=[wanted]))
        return int(response.topics[0].error_code)

    async def delete(self, topic: str) -> int:
        request = delete_topics.DeleteTopicsRequest(topic_names=[topic])
        response = await self.ask(request, 5)
        return int(response.responses[0].error_code)

    async def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = -1) -> Any:
        """The partition's answer: error_code, base_offset."""
        request = produce_request(topic, *values, partition=partition, acks=acks)
        response = await self.ask(request, 9)
        return response.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int = 0, partition: int = 0, wait: int = 0) -> Any:
        """The partition's answer: error_code, high_watermark, records."""
        response = await self.ask(fetch_request(topic, offset, partition, wait), 12)
        return response.responses[0].partitions[0]

    async def delete_records(self, topic: str, offset: int, partition: int = 0) -> Any:
        wanted = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = [delete_records.DeleteRecordsTopic(name=topic, partitions=[wanted])]
        response = await self.ask(delete_records.DeleteRecordsRequest(topics=topics))
        return response.topics[0].partitions[0]

    async def metadata(self) -> Any:
        return await self.ask(MetadataRequest(topics=None))


def produce_request(
    topic: str, *values: bytes, partition: int = 0, acks: int = -1, **fields: Any
) -> produce.ProduceRequest:
    """For versions up to 12."""
    batch = Batch(values=values or (b"value",), **fields).encode()
    data = produce.PartitionProduceData(index=partition, records=batch)
    topics = [produce.TopicProduceData(name=topic, partition_data=[data])]
    return produce.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


def fetch_request(
    topic: str, offset: int = 0, partition: int = 0, wait_ms: int = 0
) -> fetch.FetchRequest:
    """For versions up to 12."""
    wanted = fetch.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    topics = [fetch.FetchTopic(topic=topic, partitions=[wanted])]
    return fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=topics,
    )


def frame_of(request: Message, version: int, correlation_id: int = 1) -> bytes:
    """A request as it lies on the wire, without its length."""
    return write_request_header(request.API_KEY, version, correlation_id, "test") + encode(
        request, version
    )


def newest(request: Message) -> int:
    return ADVERTISED[ApiKey(request.API_KEY)].last


def response_class(request: type[Message]) -> type[Message]:
    module = sys.modules[request.__module__]
    name = request.__name__.removesuffix("Request") + "Response"
    return cast("type[Message]", getattr(module, name))
