"""Kafka's protocol for what librdkafka has no call for: one request, one answer, blocking."""

import itertools
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from chronik.cli._options import split_address
from chronik.model.errors import ErrorCode
from chronik.wire.apis import ADVERTISED, ApiKey
from chronik.wire.codec import WireError, decode, encode
from chronik.wire.headers import read_response_header, write_request_header
from chronik.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from chronik.wire.schema import Message

M = TypeVar("M", bound=Message)
CONNECT_SECONDS_MAX = 3.0
ANSWER_SECONDS_MAX = 20.0
CLIENT_ID = "chronik-cli"


class NoAnswerError(Exception):
    """A node that cannot be reached, or does not answer what it should."""


class Connection:
    """A connection to one node."""

    def __init__(self, address: tuple[str, int], timeout_s: float = ANSWER_SECONDS_MAX) -> None:
        self.address = address
        self._ids = itertools.count(1)
        try:
            self._socket = socket.create_connection(address, CONNECT_SECONDS_MAX)
        except OSError as error:
            raise NoAnswerError(f"{_text(address)}: {_reason(error)}") from error
        self._socket.settimeout(timeout_s)

    def be_patient(self) -> None:
        """The node answers: from now on it may take its time."""
        self._socket.settimeout(ANSWER_SECONDS_MAX)

    def ask(self, request: Message, response: type[M], version: int | None = None) -> M:
        """The answer in the last version that both sides know."""
        version = ADVERTISED[ApiKey(request.API_KEY)].last if version is None else version
        head = write_request_header(request.API_KEY, version, next(self._ids), CLIENT_ID)
        frame = head + encode(request, version)
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._exactly(4))
            answer = self._exactly(size)
            _, body = read_response_header(request.API_KEY, version, answer)
            return decode(response, version, answer, body)
        except (OSError, WireError) as error:
            raise NoAnswerError(f"{_text(self.address)}: {_reason(error)}") from error

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(min(size - len(data), 1 << 20))
            if not more:
                raise ConnectionError("the node closed the connection")
            data += more
        return bytes(data)

    def close(self) -> None:
        """Ends it."""
        self._socket.close()


@contextmanager
def connected(bootstrap: str) -> Iterator[Connection]:
    """A connection to the first of the bootstrap servers that answers."""
    problems = []
    for text in bootstrap.split(","):
        host, port = split_address(text)
        try:
            connection = _answering((host.strip("[]"), port))
        except NoAnswerError as error:
            problems.append(str(error))
            continue
        try:
            yield connection
        finally:
            connection.close()
        return
    raise NoAnswerError(f"no node is reachable at {' or '.join(problems)}")


def _answering(address: tuple[str, int]) -> Connection:
    """A node that hangs takes connections all the same: it is asked something first."""
    connection = Connection(address, CONNECT_SECONDS_MAX)
    try:
        connection.ask(DescribeClusterRequest(endpoint_type=1), DescribeClusterResponse)
    except NoAnswerError:
        connection.close()
        raise
    connection.be_patient()
    return connection


def refused(code: int, message: str | None, what: str) -> click.ClickException:
    """The exception for an answer with an error."""
    name = ErrorCode(code).name
    return click.ClickException(f"{what}: {message} ({name})" if message else f"{what}: {name}")


def _text(address: tuple[str, int]) -> str:
    return "{}:{}".format(*address)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)
