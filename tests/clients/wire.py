"""A bare protocol connection: requests by kio's schema, or bytes where bytes are the point."""

import dataclasses
import importlib
import io
import itertools
import socket
import struct
import types
import typing
from datetime import timedelta
from functools import lru_cache
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from tests.servers import HOST

API_KEYS = {name: key for key, name in api_key_map.items()}
NO_ID = bytes(16)
SECONDS_MAX = 20.0


class ConnectionClosedError(Exception):
    """The server closed the connection."""


class Connection:
    """Blocking; `ask` sends one request and reads its response."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        """The decoded response."""
        correlation_id = self.send(api, version, **fields)
        return self.read(api, version, correlation_id)

    def send(self, api: str, version: int, **fields: Any) -> int:
        """Sends a request and returns its correlation id."""
        correlation_id = next(self._ids)
        body = encode(build(load_request_schema(API_KEYS[api], version), fields))
        self.send_frame(request_header(api, version, correlation_id) + body)
        return correlation_id

    def read(self, api: str, version: int, correlation_id: int) -> Any:
        """The next response, which must be the one to that request and nothing but it."""
        frame = self.read_frame()
        schema = load_response_schema(API_KEYS[api], version)
        header, start = decode(schema.__header_schema__, frame, 0)
        assert header.correlation_id == correlation_id
        response, end = decode(schema, frame, start)
        assert end == len(frame), "bytes after the response"
        return response

    def send_frame(self, data: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(data)) + data)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read_exactly(4))
        return self._read_exactly(size)

    def closed_by_server(self) -> bool:
        """Waits for the server to close."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                part = self._socket.recv(count - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionClosedError
            data += part
        return bytes(data)


def request_header(api: str, version: int, correlation_id: int, client: bytes = b"test") -> bytes:
    """Header of the version that the request asks for (1, or 2 with its empty tagged fields)."""
    flexible = load_request_schema(API_KEYS[api], version).__flexible__
    start = struct.pack(">hhih", API_KEYS[api], version, correlation_id, len(client)) + client
    return start + b"\0" if flexible else start


def request_body(api: str, version: int, **fields: Any) -> bytes:
    """A request's body by kio."""
    return encode(build(load_request_schema(API_KEYS[api], version), fields))


def encode(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode(schema: Any, data: bytes, start: int) -> tuple[Any, int]:
    value, size = entity_reader(schema)(data, start)
    return value, start + size


def build(schema: Any, fields: dict[str, Any]) -> Any:
    """The entity with these fields; those that its version does not have are left out."""
    hints = field_types(schema)
    values = {}
    for field in dataclasses.fields(schema):
        if field.name in fields:
            values[field.name] = convert(hints[field.name], fields[field.name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            values[field.name] = neutral(hints[field.name])
    return schema(**values)


@lru_cache
def field_types(schema: Any) -> dict[str, Any]:
    return typing.get_type_hints(schema, vars(importlib.import_module(schema.__module__)))


def convert(hint: Any, value: Any) -> Any:
    """Lists become tuples, dicts entities, milliseconds time deltas."""
    kinds = [kind for kind in flatten(hint) if kind is not type(None)]
    if isinstance(value, dict):
        return build(kinds[0], value)
    if isinstance(value, (list, tuple)):
        inner = typing.get_args(kinds[0])[0]
        return tuple(convert(inner, each) for each in value)
    if any(isinstance(kind, type) and issubclass(kind, timedelta) for kind in kinds):
        return timedelta(milliseconds=value)
    return value


def neutral(hint: Any) -> Any:
    """Null where that is possible, else zero or empty."""
    kinds = flatten(hint)
    if type(None) in kinds:
        return None
    if typing.get_origin(kinds[0]) is tuple:
        return ()
    for base, value in ((timedelta, timedelta()), (bool, False), (int, 0), (str, "")):
        if issubclass(kinds[0], base):
            return value
    return build(kinds[0], {})


def flatten(hint: Any) -> list[Any]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [kind for each in typing.get_args(hint) for kind in flatten(each)]
    return [hint]
