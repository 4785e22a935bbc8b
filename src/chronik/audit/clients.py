"""Three Kafka clients behind one small face, so that one workload can ask them all.

confluent-kafka is a dependency; kafka-python and aiokafka are imported when they are asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from chronik.audit.record_log import Polled
from chronik.audit.rows import Outcome
from chronik.audit.send_log import SendLog

NAMES = ("confluent", "kafka-python", "aiokafka")


class ClientError(Exception):
    """A client could not do what was asked: not installed, or nobody answers."""


class TransientError(Exception):
    """A poll or a question failed in a way that may pass: the workload notes it and goes on."""


@contextmanager
def transient(*errors: type[Exception]) -> Iterator[None]:
    """Errors of a client library as transient ones."""
    try:
        yield
    except errors as error:
        raise TransientError(f"{type(error).__name__}: {error}") from error


class ProducerSettings(NamedTuple):
    """What a producer is asked for."""

    bootstrap: str
    topic: str
    acks: str = "all"
    idempotent: bool = False
    timeout_s: float = 60.0
    transactional_id: str = ""
    """Not empty: every send belongs to a transaction (KIP-98)."""


class ConsumerSettings(NamedTuple):
    """What a consumer is asked for; `group` empty means assigned partitions."""

    bootstrap: str
    topic: str
    partitions: int
    group: str = ""
    poll_records_max: int = 500
    fetch_wait_ms: int = 500
    """How long a broker may sleep on a fetch that finds nothing (fetch.wait.max.ms)."""


class Outgoing(NamedTuple):
    """One record to send; partition None leaves the choice to the client."""

    sequence: int
    partition: int | None
    key: bytes | None
    value: bytes


class Place(NamedTuple):
    """A consumer's place in one partition; -1 where it is not known."""

    position: int
    end: int


class ProducerClient(Protocol):
    """Sends records and reports every outcome to the log, on the caller's thread."""

    def send(self, records: Sequence[Outgoing]) -> None: ...
    def drain(self, wait_s: float = 0.0) -> None:
        """Reports the outcomes that are known, after waiting at most so long for more."""
        ...

    def settle(self, timeout_s: float) -> int:
        """Waits until every send has an outcome; returns how many have none."""
        ...

    def close(self, timeout_s: float) -> int:
        """Waits for the rest; returns how many have no outcome."""
        ...


class TransactionalClient(ProducerClient, Protocol):
    """A producer whose sends stand between `begin_transaction` and `end_transaction`."""

    def begin_transaction(self) -> None: ...
    def end_transaction(self, *, commit: bool) -> tuple[Outcome, str]:
        """ok is committed, fail is aborted, info is what nobody knows; and the error."""
        ...


class ConsumerClient(Protocol):
    """Polls records; `moved` is called with partition and position at each (re)assignment."""

    def poll(self, timeout_s: float) -> list[Polled]: ...
    def places(self) -> dict[int, Place]: ...
    def close(self) -> None: ...


Moved = Callable[[str, int, int], None]
"""Called with `assign`, `rebalance` or `revoke`, the partition and the position."""


def open_producer(name: str, settings: ProducerSettings, log: SendLog) -> ProducerClient:
    client: ProducerClient = _opened(_module(name).Producer, settings, log)
    return client


def open_transactional(settings: ProducerSettings, log: SendLog) -> TransactionalClient:
    """Of the three libraries, confluent-kafka tells exactly how a transaction ended."""
    client: TransactionalClient = _opened(_module("confluent").TransactionalProducer, settings, log)
    return client


def open_consumer(name: str, settings: ConsumerSettings, moved: Moved) -> ConsumerClient:
    client: ConsumerClient = _opened(_module(name).Consumer, settings, moved)
    return client


def _module(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    file = {
        "confluent": "client_confluent",
        "kafka-python": "client_kafka",
        "aiokafka": "client_aio",
    }
    try:
        return import_module(f"chronik.audit.{file[name]}")
    except ImportError as error:
        raise ClientError(f"{name} is not installed: {error}") from error


def _opened(factory: Any, *arguments: Any) -> Any:
    try:
        return factory(*arguments)
    except ClientError:
        raise
    except Exception as error:
        raise ClientError(f"cannot reach the cluster: {error}") from error


DEFINITE_ERRORS = frozenset(
    (
        "MSG_SIZE_TOO_LARGE",
        "MessageSizeTooLargeError",
        "INVALID_RECORD",
        "TOPIC_AUTHORIZATION_FAILED",
        "TopicAuthorizationFailedError",
        "_PURGE_QUEUE",
        "_UNKNOWN_PARTITION",
    )
)
"""Errors after which nothing was written. After any other, nobody knows: a retry came before it."""


def outcome_of(error: str) -> Outcome:
    return Outcome.FAIL if error in DEFINITE_ERRORS else Outcome.INFO
