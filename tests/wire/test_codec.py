"""The compiled codec against kio: every message and version, values and bytes, both directions."""

import dataclasses
import datetime
import importlib
import random
import runpy
import struct
import subprocess
import sys
import uuid
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_writer

from chronik.wire import codec
from chronik.wire.apis import ApiKey
from chronik.wire.codec import WireError, decode, decode_from, encode
from chronik.wire.messages import (
    create_topics,
    delete_topics,
    fetch,
    join_group,
    metadata,
)
from chronik.wire.primitives import ZERO_UUID, read_uvarint, uvarint
from chronik.wire.schema import Message, Struct, contains, nested
from chronik.wire.versions import decode_request, encode_response

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src/chronik/wire/messages"
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
INTEGER_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def messages_of(module: str) -> list[type[Message]]:
    """The whole bodies that one generated module holds."""
    found = vars(importlib.import_module(f"chronik.wire.messages.{module}")).values()
    return [
        item
        for item in found
        if isinstance(item, type) and issubclass(item, Message) and item is not Message
    ]


def versions_of(message: type[Message]) -> range:
    first, last = message.VERSIONS.split("-")
    return range(int(first), int(last) + 1)


def kio_class(module: str, message: type[Message], version: int) -> Any:
    for kind in schema_name_map[module][version]:
        found = load_entity_schema(module, version, kind)
        if found.__name__ == message.__name__:
            return found
    raise AssertionError((module, message, version))


def kio_bytes(entity: Any) -> bytes:
    pieces = bytearray()

    class Sink:
        write = pieces.extend

    entity_writer(type(entity))(Sink, entity)  # type: ignore[arg-type]
    return bytes(pieces)


def unfold(annotation: Any) -> tuple[Any, bool, bool]:
    """Element type, is it an array, may it be null."""
    arguments = get_args(annotation)
    if NoneType in arguments:
        (plain,) = (argument for argument in arguments if argument is not NoneType)
        inner, is_array, _ = unfold(plain)
        return inner, is_array, True
    if get_origin(annotation) is tuple:
        return arguments[0], True, False
    return annotation, False, False


def random_entity(cls: Any, rng: random.Random) -> Any:
    """A kio entity with all kinds of values: nulls, defaults, long strings, extremes."""
    return cls(**{field.name: random_value(field, rng) for field in dataclasses.fields(cls)})


def random_value(field: Any, rng: random.Random) -> Any:
    inner, is_array, nullable = unfold(field.type)
    has_default = field.default is not dataclasses.MISSING
    if has_default and rng.random() < 0.3:
        return field.default
    if nullable and "tag" not in field.metadata and rng.random() < 0.3:
        return None
    if is_array:
        return tuple(element(inner, field, rng) for _ in range(rng.choice((0, 1, 2, 2, 3))))
    return element(inner, field, rng)


def element(inner: Any, field: Any, rng: random.Random) -> Any:
    if dataclasses.is_dataclass(inner):
        return random_entity(inner, rng)
    return primitive(field.metadata["kafka_type"], rng)


def primitive(kind: str, rng: random.Random) -> Any:
    if kind in INTEGER_BITS:
        limit = 1 << INTEGER_BITS[kind]
        return rng.choice((0, 1, -1, limit - 1, -limit, rng.randrange(-limit, limit)))
    length = rng.choice((0, 1, 5, 126, 127, 128, 300))
    makers: dict[str, Any] = {
        "uint16": lambda: rng.randrange(1 << 16),
        "float64": lambda: rng.uniform(-1e9, 1e9),
        "bool": lambda: rng.random() < 0.5,
        "string": lambda: "".join(rng.choices("aZ0-é✓𝄞", k=length)),
        "bytes": lambda: rng.randbytes(length),
        "records": lambda: rng.randbytes(length),
        "uuid": lambda: rng.choice((None, uuid.UUID(bytes=rng.randbytes(16)))),
        "error_code": lambda: rng.choice(list(KioErrorCode)),
        "timedelta_i32": lambda: datetime.timedelta(milliseconds=rng.randrange(-1, 1 << 31)),
        "timedelta_i64": lambda: datetime.timedelta(milliseconds=rng.randrange(-1, 1 << 40)),
        "datetime_i64": lambda: EPOCH + datetime.timedelta(seconds=rng.randrange(1 << 32)),
    }
    return makers[kind]()


def ours(entity: Any, cls: type[Struct]) -> Struct:
    """The same message as an object of the generated class."""
    values: dict[str, Any] = {}
    kinds = {row[0]: row[1] for row in cls.FIELDS}
    for field in dataclasses.fields(entity):
        kind = field.metadata.get("kafka_type", "")
        name = field.name + ("_ms" if kind.startswith(("timedelta", "datetime")) else "")
        value = getattr(entity, field.name)
        inner = nested(cls, kinds[name].removeprefix("[]"))
        if not kinds[name].startswith("[]"):
            values[name] = plain(value, kind, inner)
        else:
            listed = [plain(item, kind, inner) for item in value or ()]
            values[name] = None if value is None else listed
    return cls(**values)


def plain(value: Any, kind: str, inner: type[Struct] | None) -> Any:
    if inner is not None:
        return ours(value, inner) if value is not None else None
    if kind == "uuid":
        return ZERO_UUID if value is None else value.bytes
    if kind == "datetime_i64":
        return -1 if value is None else (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    return int(value.value) if kind == "error_code" else value


@pytest.mark.parametrize("module", MODULES)
@settings(max_examples=4)
@given(seed=st.integers(0, 1 << 32))
def test_every_version_reads_and_writes_what_kio_does(module: str, seed: int) -> None:
    rng = random.Random(seed)
    for message in messages_of(module):
        for version in versions_of(message):
            entity = random_entity(kio_class(module, message, version), rng)
            expected = kio_bytes(entity)
            found, position = decode_from(message, version, expected)
            assert found == ours(entity, message)
            assert position == len(expected)
            assert encode(found, version) == expected


@pytest.mark.parametrize("module", MODULES)
def test_fm09_tagged_fields_and_trailing_bytes_that_nobody_knows_are_ignored(module: str) -> None:
    rng = random.Random(9)
    for message in messages_of(module):
        for version in versions_of(message):
            cls = kio_class(module, message, version)
            data = kio_bytes(random_entity(cls, rng))
            known = decode(message, version, data)
            assert decode(message, version, data + b"trailing") == known
            if cls.__flexible__ and not any("tag" in f.metadata for f in dataclasses.fields(cls)):
                assert data[-1] == 0
                more = data[:-1] + b"\2" + uvarint(77) + b"\3abc" + uvarint(300) + b"\0"
                assert decode(message, version, more) == known


def test_fm09_an_unknown_tag_inside_a_tagged_struct_is_not_taken_for_one_outside() -> None:
    partition = fetch.PartitionData(diverging_epoch=fetch.EpochEndOffset(5, 6))
    topic = fetch.FetchableTopicResponse("t", partitions=[partition])
    answer = fetch.FetchResponse(responses=[topic])
    data = encode(answer, 12)
    known = b"\x01\x00\x0d" + struct.pack(">iq", 5, 6) + b"\x00"
    unknown = b"\x01\x00\x17" + struct.pack(">iq", 5, 6) + b"\x01\x01\x08" + bytes(8)
    assert data.count(known) == 1
    assert decode(fetch.FetchResponse, 12, data.replace(known, unknown)) == answer


@pytest.mark.parametrize("module", MODULES)
def test_fm03_a_message_cut_anywhere_is_a_wire_error(module: str) -> None:
    rng = random.Random(3)
    for message in messages_of(module):
        for version in versions_of(message)[-3:]:
            data = kio_bytes(random_entity(kio_class(module, message, version), rng))
            for end in range(0, len(data), 1 + len(data) // 150):
                with pytest.raises(WireError, match=f"{message.__name__} v{version}: "):
                    decode(message, version, data[:end])


@pytest.mark.parametrize("module", MODULES)
@settings(max_examples=2)
@given(seed=st.integers(0, 1 << 32))
def test_fm03_garbage_is_a_message_or_a_wire_error_and_nothing_else(module: str, seed: int) -> None:
    rng = random.Random(seed)
    for message in messages_of(module):
        for version in versions_of(message):
            data = bytearray(kio_bytes(random_entity(kio_class(module, message, version), rng)))
            for _ in range(3):
                if data:
                    data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255))
            for garbage in (data, rng.randbytes(40), b"\xff" * 40, b"\x7f" * 40):
                try:
                    decode(message, version, garbage)
                except WireError:
                    continue


@pytest.mark.parametrize("declared", [-1, -2, 2**31 - 1, -(2**31)])
def test_fm03_array_lengths_of_create_topics_never_allocate(declared: int) -> None:
    topic = struct.pack(">h1si", 1, b"t", 3) + struct.pack(">h", 1)
    request = struct.pack(">i", 1) + topic + struct.pack(">i", declared)
    if declared > 0:
        with pytest.raises(WireError, match="assignments elements: 2147483647 declared"):
            decode(create_topics.CreateTopicsRequest, 2, request + bytes(20))
        return
    found = decode(create_topics.CreateTopicsRequest, 2, request + struct.pack(">iib", -1, 500, 1))
    assert found.topics == [create_topics.CreatableTopic("t", 3, 1, [], [])]
    assert (found.timeout_ms, found.validate_only) == (500, True)


def test_fm03_a_null_array_of_topics_is_none_where_null_means_something() -> None:
    assert decode(metadata.MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    assert decode(create_topics.CreateTopicsRequest, 2, struct.pack(">iib", -1, 1, 0)).topics == []


def test_fm02_delete_topics_v4_to_v6_are_compact_and_v6_has_topic_ids() -> None:
    cls = delete_topics.DeleteTopicsRequest
    old = b"\x02\x02t" + struct.pack(">i", 100) + b"\0"
    for version in (4, 5):
        assert decode(cls, version, old).topic_names == ["t"]
        assert decode_request(cls, version, old).topics == [delete_topics.DeleteTopicState("t")]
    topic_id = bytes(range(16))
    new = b"\x02\x00" + topic_id + b"\0" + struct.pack(">i", 100) + b"\0"
    assert decode_request(cls, 6, new).topics == [delete_topics.DeleteTopicState(None, topic_id)]
    result = delete_topics.DeletableTopicResult("t", topic_id, 3, "gone")
    answer = delete_topics.DeleteTopicsResponse(responses=[result])
    assert encode_response(answer, 4) == b"\0\0\0\0\x02\x02t\0\3\0\0"
    assert encode_response(answer, 6) == b"\0\0\0\0\x02\x02t" + topic_id + b"\0\3\x05gone\0\0"


def test_null_in_a_version_without_null_is_written_as_empty() -> None:
    answer = join_group.JoinGroupResponse(protocol_name=None)
    assert decode(join_group.JoinGroupResponse, 6, encode(answer, 6)).protocol_name == ""
    assert decode(join_group.JoinGroupResponse, 7, encode(answer, 7)).protocol_name is None
    assert (
        decode(metadata.MetadataRequest, 0, encode(metadata.MetadataRequest(None), 0)).topics == []
    )


def test_values_that_do_not_fit_are_wire_errors() -> None:
    with pytest.raises(WireError, match="JoinGroupRequest v1"):
        encode(join_group.JoinGroupRequest("g", 1 << 40), 1)
    with pytest.raises(WireError, match="JoinGroupRequest v1"):
        encode(join_group.JoinGroupRequest(None), 1)  # type: ignore[arg-type]
    with pytest.raises(WireError, match="JoinGroupRequest has no version 99"):
        encode(join_group.JoinGroupRequest(), 99)
    with pytest.raises(WireError, match="no version -1"):
        decode(join_group.JoinGroupRequest, -1, b"")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read_from_any_position(kind: Any) -> None:
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(bytes(16), "tópico")])
    data = kind(b"front" + encode(request, 12) + b"rest")
    assert decode(metadata.MetadataRequest, 12, data, 5) == request


def test_defaults_are_not_shared_between_messages() -> None:
    first = metadata.MetadataResponse()
    first.brokers.append(metadata.MetadataResponseBroker(1))
    assert metadata.MetadataResponse().brokers == []
    assert first != metadata.MetadataResponse()
    assert "brokers=[MetadataResponseBroker(node_id=1" in repr(first)


@given(value=st.integers(0, (1 << 35) - 1))
def test_varints_are_read_as_written(value: int) -> None:
    assert read_uvarint(uvarint(value) + b"x", 0) == (value, len(uvarint(value)))


def test_a_varint_without_end_is_a_wire_error() -> None:
    with pytest.raises(WireError, match="varint of more than 5 bytes"):
        read_uvarint(b"\x80" * 9, 0)


def test_ranges_are_read_as_kafka_writes_them() -> None:
    assert [contains("3+", v) for v in (2, 3, 99)] == [False, True, True]
    assert [contains("2-7", v) for v in (1, 2, 7, 8)] == [False, True, True, False]
    assert [contains("5", v) for v in (4, 5, 6)] == [False, True, False]
    assert not contains("", 0)


def test_readers_and_writers_are_compiled_once_per_class_and_version() -> None:
    cls = metadata.MetadataRequest
    decode(cls, 12, encode(cls(), 12))
    reader, writer = codec._readers[cls, 12], codec._writers[cls, 12]
    decode(cls, 12, encode(cls(), 12))
    assert codec._readers[cls, 12] is reader
    assert codec._writers[cls, 12] is writer


def test_every_api_has_its_messages() -> None:
    keys = {message.API_KEY for module in MODULES for message in messages_of(module)}
    assert keys - {-1} == set(ApiKey)


def test_the_committed_messages_are_what_the_generator_writes() -> None:
    rendered = runpy.run_path(str(ROOT / "tools/generate_messages.py"))["render_all"]()
    assert {path.name: path.read_text() for path in PACKAGE.glob("*.py")} == rendered


def test_running_code_needs_no_kio() -> None:
    program = "import sys, chronik.wire.versions; sys.exit('kio' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
