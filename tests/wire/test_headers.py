"""Headers, against kio's header schema of every API and version."""

import importlib
import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from chronik.wire.apis import ADVERTISED, NEVER, ApiKey, flexible_from, is_served
from chronik.wire.codec import WireError
from chronik.wire.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    request_header_version,
    response_frame_start,
    response_header_version,
    write_request_header,
)

KEYS = sorted(ApiKey)


def kio_versions(key: ApiKey) -> list[int]:
    return sorted(schema_name_map[key.name.lower()])


@pytest.mark.parametrize("key", KEYS)
def test_fm01_header_versions_are_kafkas_for_every_api_and_version(key: ApiKey) -> None:
    for version in kio_versions(key):
        request = load_request_schema(key, version).__header_schema__
        response = load_response_schema(key, version).__header_schema__
        assert request_header_version(key, version) == request.__version__
        assert response_header_version(key, version) == response.__version__


@pytest.mark.parametrize(
    ("key", "last_plain"),
    [(ApiKey.DELETE_TOPICS, 3), (ApiKey.DESCRIBE_ACLS, 1), (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0)],
)
def test_fm01_no_tag_byte_before_the_body_of_a_plain_version(key: ApiKey, last_plain: int) -> None:
    assert response_frame_start(key, last_plain, 7, 10) == struct.pack(">ii", 14, 7)
    assert response_frame_start(key, last_plain + 1, 7, 10) == struct.pack(">iib", 15, 7, 0)


@pytest.mark.parametrize("version", range(5))
def test_fm07_api_versions_is_answered_with_the_plain_header(version: int) -> None:
    assert response_header_version(ApiKey.API_VERSIONS, version) == 0
    assert response_frame_start(ApiKey.API_VERSIONS, version, 9, 1) == struct.pack(">ii", 5, 9)


@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=3)
@given(correlation_id=st.integers(-(2**31), 2**31 - 1), client_id=st.none() | st.text(max_size=40))
def test_request_headers_are_read_and_written_as_kio_does(
    key: ApiKey, correlation_id: int, client_id: str | None
) -> None:
    for version in {kio_versions(key)[0], kio_versions(key)[-1]}:
        schema = load_request_schema(key, version).__header_schema__
        header = schema(
            request_api_key=i16(key),
            request_api_version=i16(version),
            correlation_id=i32(correlation_id),
            client_id=client_id,
        )
        with io.BytesIO() as sink:
            entity_writer(schema)(sink, header)
            data = sink.getvalue()
        expected = RequestHeader(key, version, correlation_id, client_id, len(data))
        assert read_request_header(memoryview(data + b"body")) == expected
        assert write_request_header(key, version, correlation_id, client_id) == data


@pytest.mark.parametrize(
    ("key", "version"), [(999, 0), (-5, 3), (ApiKey.METADATA, 99), (ApiKey.API_VERSIONS, 77)]
)
@settings(max_examples=3)
@given(rest=st.binary(max_size=30))
def test_fm05_an_unknown_api_or_version_still_gives_the_correlation_id(
    key: int, version: int, rest: bytes
) -> None:
    header = read_request_header(struct.pack(">hhi", key, version, 4711) + rest)
    assert (header.api_key, header.api_version, header.correlation_id) == (key, version, 4711)
    assert not is_served(key, version)


def test_fm09_tagged_fields_of_a_header_are_skipped() -> None:
    plain = write_request_header(ApiKey.METADATA, 12, 1, "client")
    tagged = plain[:-1] + b"\x01\x63\x02hi"
    assert read_request_header(tagged + b"body").body == len(tagged)
    assert read_request_header(tagged + b"body").client_id == "client"
    assert read_response_header(ApiKey.METADATA, 12, b"\0\0\0\x05\x01\x63\x02hibody") == (5, 9)
    assert read_response_header(ApiKey.METADATA, 8, b"\0\0\0\x05body") == (5, 4)


def test_fm03_a_header_cut_anywhere_is_a_wire_error() -> None:
    header = write_request_header(ApiKey.METADATA, 12, 1, "client")
    for end in range(len(header)):
        with pytest.raises(WireError, match="request header"):
            read_request_header(header[:end])
    for end in range(5):
        with pytest.raises(WireError, match="response header"):
            read_response_header(ApiKey.METADATA, 12, bytes(5)[:end])


def test_the_advertised_versions_all_have_messages() -> None:
    for key, (first, last) in ADVERTISED.items():
        served = [version for version in range(first, last + 1) if is_served(key, version)]
        assert set(served) <= set(kio_versions(key)), key
        assert not is_served(key, last + 1)


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    assert ADVERTISED[ApiKey.PRODUCE] == (0, 13)
    assert [is_served(ApiKey.PRODUCE, version) for version in (2, 3, 13, 14)] == [
        False,
        True,
        True,
        False,
    ]


def test_flexible_versions_are_those_of_the_messages() -> None:
    for key in KEYS:
        module = importlib.import_module(f"chronik.wire.messages.{key.name.lower()}")
        (versions,) = {
            item.FLEXIBLE for item in vars(module).values() if getattr(item, "API_KEY", -1) == key
        }
        assert versions == ("" if flexible_from(key) == NEVER else f"{flexible_from(key)}+")
