"""The cluster as the commands see it: an admin client, and errors that say what to do."""

import difflib
import functools
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from chronik.cli._options import pairs, split_address
from chronik.cli._output import quiet_end

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

P = ParamSpec("P")
R = TypeVar("R")

CONNECT_SECONDS_MAX = 3.0
ANSWER_SECONDS_MAX = 12.0
ATTEMPTS_MAX = 30
ATTEMPT_PAUSE_S = 0.1
SUGGESTIONS_MAX = 2
SIMILARITY_MIN = 0.75
CLIENT_ID = "chronik-cli"


def client_command(function: Callable[P, R]) -> Callable[P, R]:
    """A command that talks to a cluster: it never ends with a traceback."""

    @quiet_end
    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        from confluent_kafka import KafkaException

        try:
            return function(*args, **kwargs)
        except KafkaException as error:
            raise click.ClickException(error_text(error.args[0])) from error

    return wrapped


class Cluster:
    """A cluster that answers at `bootstrap`; the admin client is made when it is needed."""

    def __init__(self, bootstrap: str, extra: Iterable[str] = ()) -> None:
        self.bootstrap = bootstrap
        self._extra = pairs(extra, "-X")
        require_reachable(bootstrap)

    def settings(self, **more: Any) -> dict[str, Any]:
        """librdkafka settings; `-X` wins over what a command chose."""
        quiet = {"log_level": 0, "error_cb": lambda _error: None}
        base = {"bootstrap.servers": self.bootstrap, "client.id": CLIENT_ID}
        # A loopback host often has an IPv6 address on which nobody listens: no wait for that one.
        fast = {"reconnect.backoff.ms": 10, "broker.address.family": self._family()}
        return {**quiet, **base, **fast, **more, **self._extra}

    def _family(self) -> str:
        hosts = [split_address(one)[0] for one in self.bootstrap.split(",")]
        return "v4" if all(host in {"localhost", "127.0.0.1"} for host in hosts) else "any"

    @functools.cached_property
    def admin(self) -> "AdminClient":
        """One admin client for the whole command."""
        from confluent_kafka.admin import AdminClient

        with bad_settings():
            return AdminClient(self.settings())

    def topic_names(self) -> list[str]:
        """Every topic there is."""
        return sorted(self.metadata().topics)

    def metadata(self) -> Any:
        """Brokers and topics; creates none."""
        return self.admin.list_topics(timeout=ANSWER_SECONDS_MAX)

    def wait_for_topics(self, names: Iterable[str]) -> bool:
        """Waits until new topics have leaders, which in a cluster comes a little after creation."""
        wanted = set(names)
        return any(self._led(wanted) for _ in attempts())

    def _led(self, names: set[str]) -> bool:
        known = self.metadata().topics
        return all(
            name in known
            and known[name].partitions
            and all(one.leader >= 0 for one in known[name].partitions.values())
            for name in names
        )

    def unknown_topic(self, name: str) -> click.ClickException:
        """The error for a topic that is not there, with the names that come close."""
        return unknown_topic(name, self.topic_names())


def admin_module() -> Any:
    """confluent_kafka.admin with its re-exports, which its own types do not declare."""
    from confluent_kafka import admin

    return admin


@contextmanager
def bad_settings() -> Iterator[None]:
    """A librdkafka setting that is unknown or out of range is a bad `-X`."""
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, TypeError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise click.UsageError(f"librdkafka refuses its settings: {reason}") from error


def attempts() -> Iterator[int]:
    """Counts tries of something that may need a moment, with a pause before each but the first."""
    for number in range(ATTEMPTS_MAX):
        if number:
            time.sleep(ATTEMPT_PAUSE_S)
        yield number


def results(futures: Mapping[Any, Any]) -> dict[Any, Any]:
    """Waits for the futures of an admin call; a failure is the error in its place."""
    from confluent_kafka import KafkaException

    found: dict[Any, Any] = {}
    for key, future in futures.items():
        try:
            found[key] = future.result(timeout=ANSWER_SECONDS_MAX + 5)
        except KafkaException as error:
            found[key] = error.args[0]
    return found


def result(futures: Mapping[Any, Any]) -> Any:
    """The result of an admin call about one thing."""
    (future,) = futures.values()
    return future.result(timeout=ANSWER_SECONDS_MAX + 5)


# -- reaching it


def require_reachable(bootstrap: str) -> None:
    """Fails at once where nobody listens: librdkafka would go on trying until its timeout."""
    problems = []
    for address in bootstrap.split(","):
        problem = connect_error(address)
        if problem is None:
            return
        problems.append(f"{address} ({problem})")
    raise click.ClickException(
        f"no broker is reachable at {' or '.join(problems)}. Start one with 'chronik up', or say "
        "where yours is with --bootstrap HOST:PORT or CHRONIK_BOOTSTRAP"
    )


def connect_error(address: str) -> str | None:
    """Why no connection to HOST:PORT can be made; None where one can."""
    host, port = split_address(address)
    try:
        socket.create_connection((host.strip("[]"), port), CONNECT_SECONDS_MAX).close()
    except TimeoutError:
        return f"no answer in {CONNECT_SECONDS_MAX:.0f} s"
    except socket.gaierror:
        return "no such host"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


# -- what to say


def error_text(error: "KafkaError") -> str:
    """An error of the cluster or of librdkafka, and what to do about it."""
    reason = error.str().replace("Broker: ", "").replace("Local: ", "").rstrip(".")
    advice = _advice().get(error.code())
    text = f"{reason} ({error.name()})"
    return f"{text}. {advice}" if advice else text


@functools.cache
def _advice() -> dict[int, str]:
    from confluent_kafka import KafkaError

    unanswered = (
        "The address accepts connections, but no broker answered: check that it is a Kafka "
        "listener without TLS (or give -X security.protocol=...), and that the addresses which "
        "it advertises can be reached from here"
    )
    return {
        KafkaError._TIMED_OUT: unanswered,
        KafkaError._TRANSPORT: unanswered,
        KafkaError._ALL_BROKERS_DOWN: unanswered,
        KafkaError.MSG_SIZE_TOO_LARGE: (
            "Raise max.message.bytes of the topic ('chronik config set') and, for produce, "
            "-X message.max.bytes=..."
        ),
        KafkaError._MSG_TIMED_OUT: (
            "No acknowledgement came in time: is the partition's leader up ('chronik topic "
            "describe')?"
        ),
        KafkaError.NOT_ENOUGH_REPLICAS: (
            "Fewer replicas are in sync than min.insync.replicas asks for ('chronik topic "
            "describe')"
        ),
    }


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """The names that a typing mistake may have meant."""
    return difflib.get_close_matches(name, list(known), SUGGESTIONS_MAX, SIMILARITY_MIN)


def did_you_mean(close: Iterable[str]) -> str:
    """The question, or nothing where nothing is close."""
    names = " or ".join(f"'{name}'" for name in close)
    return f"did you mean {names}?" if names else ""


def unknown_topic(name: str, known: Iterable[str]) -> click.ClickException:
    """The error for a topic that is not among those that there are."""
    close = close_names(name, known)
    advice = did_you_mean(close) or "'chronik topic list' shows those that do, "
    if not close:
        advice += f"'chronik topic create {name}' makes it"
    return click.ClickException(f"topic '{name}' does not exist. {_capital(advice)}")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
