"""What the client tests share: records, and one face for every client library.

An adapter translates; it never retries, sorts or repairs, so that a test sees what the server did.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
Acks = Literal["0", "1", "all"]
ALL_ACKS: tuple[Acks, ...] = ("0", "1", "all")
Headers = tuple[tuple[str, bytes | None], ...]

MESSAGE_TOO_LARGE = 10
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC_EXCEPTION = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
OFFSET_OUT_OF_RANGE = 1

SECONDS_MAX = 20.0
"""How long a client waits for what must come."""
QUIET_SECONDS = 0.7
"""How long a client waits where nothing must come."""


class RefusedError(Exception):
    """The server answered with an error code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(f"error {code} {message}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Record:
    """What a producer sends."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = 0
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """What a consumer gets."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Client(ABC):
    """Produce and consume without groups."""

    name: ClassVar[str]
    null_key_and_value: ClassVar[bool] = True
    """False where the library refuses a record with neither."""
    null_header_value: ClassVar[bool] = True
    idempotence: ClassVar[bool] = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[int]:
        """The records' offsets, in their order (with acks 0 they mean nothing)."""

    @abstractmethod
    def consume(
        self,
        topic: str,
        count: int,
        partitions: Sequence[int] = (0,),
        start: int = 0,
        seconds: float = SECONDS_MAX,
    ) -> list[Received]:
        """The first `count` records from `start` on, fewer if the time is up."""

    @abstractmethod
    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The offset of the first record, and the one after the last."""

    @abstractmethod
    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        """The first offset with that timestamp or a later one."""

    def close(self) -> None:  # noqa: B027
        """Gives back what the client holds."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a client learns about the cluster."""

    cluster_id: str
    brokers: dict[int, str]
    controller: int


class Admin(ABC):
    """The administration that every library offers in its own words."""

    @abstractmethod
    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None: ...

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...

    @abstractmethod
    def topics(self) -> set[str]: ...

    @abstractmethod
    def partitions(self, topic: str) -> dict[int, int]:
        """Partition to leader."""

    @abstractmethod
    def create_partitions(self, topic: str, total: int) -> None: ...

    @abstractmethod
    def config(self, topic: str) -> dict[str, str | None]: ...

    @abstractmethod
    def alter_config(self, topic: str, key: str, value: str) -> None: ...

    @abstractmethod
    def delete_records(self, topic: str, before: int, partition: int = 0) -> int:
        """The new first offset."""

    @abstractmethod
    def cluster(self) -> Cluster: ...


class DeepAdmin(Admin):
    """The administration that some libraries do not have."""

    @abstractmethod
    def list_offset(self, topic: str, spec: str, partition: int = 0) -> tuple[int, int]:
        """Offset and timestamp; spec is `earliest`, `latest`, `max_timestamp` or milliseconds."""


def payload(number: int, size: int = 300) -> bytes:
    """A text that compresses, different for each number."""
    return (f"record {number} " * (size // 8))[:size].encode()


def by_partition(records: Iterable[Received]) -> dict[int, list[Received]]:
    """Records of each partition in the order they came."""
    split: dict[int, list[Received]] = {}
    for record in records:
        split.setdefault(record.partition, []).append(record)
    return split


def eventually(condition: Callable[[], bool], seconds: float = SECONDS_MAX) -> bool:
    """Asks until it is true or the time is up."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True
