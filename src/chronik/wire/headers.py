"""Request and response headers, which come before every body and depend on API and version.

    request v1   api key i16, api version i16, correlation id i32, client id (nullable string)
    request v2   the same, then tagged fields; the client id keeps its 16 bit length (KIP-511)
    response v0  correlation id i32
    response v1  the same, then tagged fields

ApiVersions is answered with v0 always: a client that asks with a version too new for the broker
must be able to read the answer.
"""

import struct
from typing import Final, NamedTuple

from chronik.wire.apis import FLEXIBLE_FROM, NEVER, ApiKey, flexible_from, is_served
from chronik.wire.primitives import Buffer, WireError, short, skip_tags

_FIXED: Final = struct.Struct(">hhi")
_START: Final = struct.Struct(">hhih")
_START_BYTES: Final = _START.size
"""The same, and the client id's length."""
_LENGTH: Final = struct.Struct(">h")
_CORRELATION_ID: Final = struct.Struct(">i")
_FRAME_V0: Final = struct.Struct(">ii")
_FRAME_V1: Final = struct.Struct(">iib")


class RequestHeader(NamedTuple):
    """Who asks for what."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int
    """Position of the body in the frame."""


def request_header_version(api_key: int, api_version: int) -> int:
    """2 for flexible versions, else 1."""
    return 2 if api_version >= flexible_from(api_key) else 1


def first_flexible_response(api_key: int) -> int:
    """First version whose answers have response header 1; ApiVersions has none."""
    return NEVER if api_key == ApiKey.API_VERSIONS else flexible_from(api_key)


def response_header_version(api_key: int, api_version: int) -> int:
    """1 for flexible versions, else 0; ApiVersions 0."""
    return 1 if api_version >= first_flexible_response(api_key) else 0


def read_request_header(frame: Buffer, position: int = 0) -> RequestHeader:
    """The header of a frame without its length prefix.

    A key or version that is not served still gives the correlation id, which its answer needs;
    what follows may have any form then, so the client id is taken only if it can be read.
    """
    end = len(frame)
    if end - position < _START_BYTES:
        return _torn_request_header(frame, position)
    api_key, api_version, correlation_id, length = _START.unpack_from(frame, position)
    start = body = position + _START_BYTES
    client_id = None
    try:
        if length >= 0:
            body += length
            if body > end:
                raise short("client id", length, start, end)
            client_id = str(frame[start:body], "utf-8")
        if api_version >= FLEXIBLE_FROM.get(api_key, NEVER):
            body = skip_tags(frame, body) if frame[body] else body + 1
    except (ValueError, IndexError, struct.error) as error:
        if is_served(api_key, api_version):
            raise WireError(f"request header of API {api_key} v{api_version}: {error}") from error
        client_id, body = None, end
    return tuple.__new__(RequestHeader, (api_key, api_version, correlation_id, client_id, body))


def _torn_request_header(frame: Buffer, position: int) -> RequestHeader:
    """Not even the client id's length: an answer only to who asks for what is not served."""
    left = len(frame) - position
    if left < _FIXED.size:
        raise WireError(f"request header: {left} bytes, {_FIXED.size} needed")
    api_key, api_version, correlation_id = _FIXED.unpack_from(frame, position)
    if is_served(api_key, api_version):
        raise WireError(f"request header of API {api_key} v{api_version}: {left} bytes")
    return RequestHeader(api_key, api_version, correlation_id, None, len(frame))


def write_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """The header as a client sends it, without the frame's length."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if api_version >= flexible_from(api_key) else b""
    fixed = _FIXED.pack(api_key, api_version, correlation_id)
    return fixed + _LENGTH.pack(length) + name + tags


def response_frame_start(
    api_key: int, api_version: int, correlation_id: int, body_size: int
) -> bytes:
    """Length prefix and response header of a body of `body_size` bytes."""
    if response_header_version(api_key, api_version) == 0:
        return _FRAME_V0.pack(body_size + 4, correlation_id)
    return _FRAME_V1.pack(body_size + 5, correlation_id, 0)


def read_response_header(
    api_key: int, api_version: int, frame: Buffer, position: int = 0
) -> tuple[int, int]:
    """The correlation id of an answer, and the position of its body."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame, position)
        body = position + _CORRELATION_ID.size
        if response_header_version(api_key, api_version) == 1:
            body = skip_tags(frame, body)
    except (IndexError, struct.error) as error:
        raise WireError(f"response header of API {api_key} v{api_version}: {error}") from error
    return correlation_id, body
