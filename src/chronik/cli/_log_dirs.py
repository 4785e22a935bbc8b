"""Sizes of partitions by DescribeLogDirs, which confluent-kafka's admin client does not offer."""

import contextlib
import socket
import struct
from collections.abc import Iterable

from chronik.wire.codec import WireError, decode, encode
from chronik.wire.headers import read_response_header, write_request_header
from chronik.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

VERSION = 2
ANSWER_BYTES_MAX = 64 * 1024 * 1024
SECONDS_MAX = 2.0

Sizes = dict[tuple[str, int], int]


def partition_sizes(brokers: Iterable[tuple[str, int]]) -> Sizes:
    """Bytes per (topic, partition), of the largest replica.

    A broker that does not answer (it may want TLS, or older software) is left out: sizes are a
    convenience, and their absence is shown as such.
    """
    sizes: Sizes = {}
    for host, port in brokers:
        with contextlib.suppress(OSError, WireError, struct.error):
            for key, size in _ask(host, port).items():
                sizes[key] = max(size, sizes.get(key, 0))
    return sizes


def _ask(host: str, port: int) -> Sizes:
    api_key = DescribeLogDirsRequest.API_KEY
    body = encode(DescribeLogDirsRequest(topics=None), VERSION)
    request = write_request_header(api_key, VERSION, 1, "chronik-cli") + body
    with socket.create_connection((host.strip("[]"), port), SECONDS_MAX) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", _read(connection, 4))
        if not 0 < length <= ANSWER_BYTES_MAX:
            raise WireError(f"an answer of {length} bytes")
        frame = _read(connection, length)
    _, position = read_response_header(api_key, VERSION, frame)
    answer = decode(DescribeLogDirsResponse, VERSION, frame, position)
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise WireError("the broker closed the connection")
        data += piece
    return bytes(data)
