"""A small blocking Kafka client: where partitions are led, which offsets they have, raw Fetch.

Record bytes are never made into objects here. The versions are fixed ones that Kafka 2.7 to 4.x
and Chronik serve, so nothing is negotiated.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from chronik.model.errors import ErrorCode
from chronik.wire.codec import decode, encode
from chronik.wire.headers import read_response_header, write_request_header
from chronik.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from chronik.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from chronik.wire.schema import Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")
TopicPartition = tuple[str, int]

LIST_OFFSETS_VERSION: Final = 6
METADATA_VERSION: Final = 9
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ANSWER_SECONDS_MAX = 30.0
RETRY_SECONDS_MAX = 60.0
"""A leader may be away for so long before a read fails: longer than an election."""
RETRY_PAUSE_S = 0.2
FETCH_BYTES_MAX = 8 * 1024 * 1024
"""With much less the decoder has too few batches at once; much more leaves the cache."""
FETCH_WAIT_MS = 500
CLIENT_ID = "chronik-pipeline"
_SIZE = struct.Struct(">i")


class ClusterError(Exception):
    """The cluster does not answer, or says no."""


class RetriableError(ClusterError):
    """It may answer a moment later: a leader moved, a connection broke."""


class UnknownTopic(ClusterError):  # noqa: N818 - the protocol's name
    """The topic does not exist, or no longer."""


class OffsetOutOfRange(ClusterError):  # noqa: N818 - the protocol's name
    """The offset is below the log's start or above its end."""


def check(code: int, about: str) -> None:
    """Raises for a code that is an error."""
    if code == ErrorCode.NONE:
        return
    error = ErrorCode(code)
    if error is ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRange(f"{about}: {error.name}")
    kind = RetriableError if error.retriable else ClusterError
    raise kind(f"{about}: {error.name}")


class Connection:
    """One connection; requests are answered in their order, and several may be under way."""

    def __init__(
        self, host: str, port: int, answer_seconds_max: float = ANSWER_SECONDS_MAX
    ) -> None:
        try:
            self._socket = socket.create_connection((host, port), answer_seconds_max)
        except OSError as error:
            raise RetriableError(f"no connection to {host}:{port}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def send(self, request: Message, version: int) -> int:
        """Sends a request and returns its correlation id."""
        self._correlation_id += 1
        header = write_request_header(request.API_KEY, version, self._correlation_id, CLIENT_ID)
        body = encode(request, version)
        with _broken():
            self._socket.sendall(_SIZE.pack(len(header) + len(body)) + header + body)
        return self._correlation_id

    def receive(self, answer: type[M], version: int, correlation_id: int) -> M:
        """The answer to the oldest request that has none yet."""
        frame = self.receive_frame()
        found, body = read_response_header(answer.API_KEY, version, frame)
        assert found == correlation_id, "answers come in the order of the requests"
        return decode(answer, version, frame, body)

    def receive_frame(self, into: bytearray | None = None) -> memoryview:
        """The bytes of that answer, in `into` if they fit there."""
        size_bytes = bytearray(_SIZE.size)
        self._fill(memoryview(size_bytes))
        (size,) = _SIZE.unpack(size_bytes)
        buffer = bytearray(size) if into is None else into
        if len(buffer) < size:
            # A bit more than now, or the next answer, a batch longer, needs fresh memory again.
            buffer = bytearray(size + size // 8)
        frame = memoryview(buffer)[:size]
        self._fill(frame)
        return frame

    def ask(self, request: Message, answer: type[M], version: int) -> M:
        """One request and its answer."""
        return self.receive(answer, version, self.send(request, version))

    def close(self) -> None:
        self._socket.close()

    def _fill(self, view: memoryview) -> None:
        with _broken():
            while view:
                count = self._socket.recv_into(view)
                if not count:
                    raise ConnectionError("the broker closed the connection")
                view = view[count:]


@contextlib.contextmanager
def _broken() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RetriableError(str(error)) from error


@dataclass(slots=True)
class Cluster:
    """The brokers behind `bootstrap` (HOST:PORT, several with commas)."""

    bootstrap: str
    retry_seconds_max: float = RETRY_SECONDS_MAX
    answer_seconds_max: float = ANSWER_SECONDS_MAX
    _leaders: dict[TopicPartition, tuple[str, int]] = field(default_factory=dict)
    _connections: dict[tuple[str, int], Connection] = field(default_factory=dict)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def topics(self) -> list[str]:
        """Every topic that is not internal."""
        answer = self.retrying(lambda: self._metadata(None))
        return sorted(t.name for t in answer.topics if t.name and not t.is_internal)

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Every partition of the topics; one that does not exist is an error."""
        names = list(topics)
        answer = self.retrying(lambda: self._checked(names))
        found = [(t.name or "", p.partition_index) for t in answer.topics for p in t.partitions]
        return sorted(found)

    def offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """The offset for a timestamp in ms (or EARLIEST, LATEST) per partition; -1: none so late.

        LATEST is the high watermark, or the last stable offset with READ_COMMITTED.
        """
        return self.retrying(lambda: self._offsets(wanted, isolation))

    def leader(self, partition: TopicPartition) -> Connection:
        """A connection to the partition's leader."""
        if partition not in self._leaders:
            self._checked([partition[0]])
        address = self._leaders.get(partition)
        if address is None:
            raise RetriableError(f"{partition[0]}-{partition[1]} has no leader")
        return self._connection(address)

    def retrying(self, call: Callable[[], T]) -> T:
        """Calls again while the error is one that passes, with fresh metadata."""
        deadline = time.perf_counter() + self.retry_seconds_max
        while True:
            try:
                return call()
            except RetriableError:
                self.close()
                if time.perf_counter() > deadline:
                    raise
            time.sleep(RETRY_PAUSE_S)

    def _connection(self, address: tuple[str, int]) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(*address, self.answer_seconds_max)
        return self._connections[address]

    def _any(self) -> Connection:
        problems = []
        for address in self.bootstrap.split(","):
            host, _, port = address.strip().rpartition(":")
            try:
                return self._connection((host.strip("[]"), int(port)))
            except RetriableError as error:
                problems.append(str(error))
        raise RetriableError("; ".join(problems))

    def _metadata(self, topics: list[str] | None) -> MetadataResponse:
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        answer = self._any().ask(request, MetadataResponse, METADATA_VERSION)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            for one in topic.partitions:
                if one.leader_id in addresses:
                    key = (topic.name or "", one.partition_index)
                    self._leaders[key] = addresses[one.leader_id]
        return answer

    def _checked(self, topics: list[str]) -> MetadataResponse:
        answer = self._metadata(topics)
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(f"topic '{topic.name}' does not exist")
            check(topic.error_code, f"topic '{topic.name}'")
        return answer

    def _offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        by_leader: dict[Connection, list[TopicPartition]] = {}
        for partition in wanted:
            by_leader.setdefault(self.leader(partition), []).append(partition)
        for connection, partitions in by_leader.items():
            topics = _list_offsets_topics({one: wanted[one] for one in partitions})
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=5_000
            )
            answer = connection.ask(request, ListOffsetsResponse, LIST_OFFSETS_VERSION)
            for topic in answer.topics:
                for one in topic.partitions:
                    check(one.error_code, f"offsets of {topic.name}-{one.partition_index}")
                    found[topic.name, one.partition_index] = one.offset
        return found


def _list_offsets_topics(wanted: Mapping[TopicPartition, int]) -> list[ListOffsetsTopic]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in wanted.items():
        one = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics.setdefault(topic, []).append(one)
    return [ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()]


def fetch_request(topic: str, partition: int, offset: int, isolation: int) -> FetchRequest:
    """Everything from an offset on, up to `FETCH_BYTES_MAX`."""
    part = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX
    )
    return FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
