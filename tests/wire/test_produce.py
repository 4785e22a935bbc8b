"""The hand-written Produce against kio, byte for byte, in every version."""

import dataclasses
import datetime
import io
import struct
import uuid
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from chronik.wire.codec import WireError
from chronik.wire.endpoints import NO_LEADER, Leader, NodeEndpoint
from chronik.wire.produce import (
    PartitionResult,
    ProduceRequest,
    _parse,
    _parse_one,
    parse_produce,
    write_one_result,
    write_produce_response,
)

VERSIONS = range(3, 14)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=12) | st.just("long" * 50)
RECORDS = st.none() | st.binary(max_size=40) | st.just(b"x" * 300)
PARTITIONS = st.lists(st.tuples(INT32, RECORDS), max_size=4)
TOPICS = st.lists(st.tuples(TEXT, st.binary(min_size=16, max_size=16), PARTITIONS), max_size=3)
CODES = st.sampled_from([int(code.value) for code in ErrorCode])
ERRORS = st.lists(st.tuples(INT32, st.none() | TEXT), max_size=2)
LEADERS = st.just(NO_LEADER) | st.builds(Leader, INT32, INT32)
NODES = st.builds(NodeEndpoint, INT32, TEXT, INT32, st.none() | TEXT)
MILLIS = st.just(-1) | st.integers(0, 2**32).map(lambda seconds: seconds * 1000)
RESULTS = st.builds(
    PartitionResult, INT32, CODES, INT64, MILLIS, INT64, ERRORS, st.none() | TEXT, LEADERS
)
ANSWERS = st.lists(
    st.tuples(TEXT, st.binary(min_size=16, max_size=16), st.lists(RESULTS, max_size=3)), max_size=3
)


def make(cls: Any, **values: Any) -> Any:
    """An entity of a kio class from those values that its version has."""
    names = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in values.items() if name in names})


def inner(cls: Any, name: str) -> Any:
    """The class that a field of a kio class holds; None in versions without the field."""
    kind = {field.name: field.type for field in dataclasses.fields(cls)}.get(name)
    return get_args(kind)[0] if get_args(kind) else kind


def written(entity: Any) -> bytes:
    with io.BytesIO() as sink:
        entity_writer(type(entity))(sink, entity)
        return sink.getvalue()


def millis(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


def kio_request(version: int, topics: list[Any], acks: int, transactional_id: str | None) -> bytes:
    cls = load_request_schema(0, version)
    topic_cls = inner(cls, "topic_data")
    partition_cls = inner(topic_cls, "partition_data")
    data = tuple(
        make(
            topic_cls,
            name=name,
            topic_id=uuid.UUID(bytes=topic_id),
            partition_data=tuple(make(partition_cls, index=i, records=r) for i, r in partitions),
        )
        for name, topic_id, partitions in topics
    )
    return written(
        make(
            cls, transactional_id=transactional_id, acks=acks, timeout=millis(1500), topic_data=data
        )
    )


def kio_result(cls: Any, result: PartitionResult) -> Any:
    error_cls, leader_cls = inner(cls, "record_errors"), inner(cls, "current_leader")
    time_ms = result.log_append_time_ms
    errors = [
        make(error_cls, batch_index=index, batch_index_error_message=message)
        for index, message in (result.record_errors if error_cls else ())
    ]
    return make(
        cls,
        index=result.index,
        error_code=ErrorCode(result.error_code),
        base_offset=result.base_offset,
        log_append_time=None
        if time_ms == -1
        else datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC),
        log_start_offset=result.log_start_offset,
        record_errors=tuple(errors),
        error_message=result.error_message,
        current_leader=leader_cls and make(leader_cls, **result.current_leader._asdict()),
    )


def kio_response(version: int, topics: list[Any], nodes: list[NodeEndpoint]) -> bytes:
    cls = load_response_schema(0, version)
    topic_cls, node_cls = inner(cls, "responses"), inner(cls, "node_endpoints")
    result_cls = inner(topic_cls, "partition_responses")
    responses = tuple(
        make(
            topic_cls,
            name=name,
            topic_id=uuid.UUID(bytes=topic_id),
            partition_responses=tuple(kio_result(result_cls, result) for result in results),
        )
        for name, topic_id, results in topics
    )
    endpoints = tuple(make(node_cls, **node._asdict()) for node in (nodes if node_cls else ()))
    return written(
        make(cls, responses=responses, throttle_time=millis(25), node_endpoints=endpoints)
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=12)
@given(topics=TOPICS, acks=st.sampled_from([-1, 0, 1]), transactional_id=st.none() | TEXT)
def test_requests_are_read_as_kio_writes_them(
    version: int, topics: list[Any], acks: int, transactional_id: str | None
) -> None:
    data = b"head" + kio_request(version, topics, acks, transactional_id)
    found = parse_produce(version, memoryview(data + b"trailing"), 4)
    expected = [
        (None, topic_id, *partition) if version >= 13 else (name, None, *partition)
        for name, topic_id, partitions in topics
        for partition in partitions
    ]
    assert found == ProduceRequest(transactional_id, acks, 1500, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=12)
@given(topics=ANSWERS, nodes=st.lists(NODES, max_size=2))
def test_responses_are_written_as_kio_writes_them(
    version: int, topics: list[Any], nodes: list[NodeEndpoint]
) -> None:
    answer = [(topic_id if version >= 13 else name, results) for name, topic_id, results in topics]
    expected = kio_response(version, topics, nodes)
    assert write_produce_response(version, answer, 25, nodes) == expected


@pytest.mark.parametrize("version", range(3, 14))
def test_the_short_way_to_one_good_result_writes_the_same_bytes(version: int) -> None:
    topic = bytes(range(16)) if version == 13 else "topic"
    result = PartitionResult(7, 0, 1 << 40, 1_700_000_000_000, 3)
    assert write_one_result(version, topic, *result[:1], *result[2:5]) == (
        write_produce_response(version, [(topic, [result])])
    )


def test_fm09_v9_carries_record_errors_and_messages() -> None:
    result = PartitionResult(0, 87, record_errors=[(3, "bad key")], error_message="refused")
    data = write_produce_response(9, [("t", [result])])
    assert b"\x02\x00\x00\x00\x03\x08bad key\0\x08refused\0" in data
    assert b"bad key" not in write_produce_response(7, [("t", [result])])


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_slices_of_the_frame_and_can_be_patched(version: int) -> None:
    topics = [("t", bytes(16), [(0, b"first"), (1, b"second")])]
    frame = bytearray(kio_request(version, topics, -1, None))
    first, second = parse_produce(version, memoryview(frame), 0).partitions
    assert first.records is not None
    assert second.records is not None
    first.records[:5] = b"FIRST"
    assert b"FIRST" in frame
    assert bytes(second.records) == b"second"


@pytest.mark.parametrize("version", VERSIONS)
def test_fm03_a_request_cut_anywhere_is_a_wire_error(version: int) -> None:
    topics = [("topic", bytes(range(16)), [(0, b"records"), (1, b"more")])]
    data = kio_request(version, topics, 1, "txn")
    # The last byte of a flexible body is the empty tagged section, which nothing of ours needs.
    for end in range(len(data) - (version >= 9)):
        with pytest.raises(WireError):
            parse_produce(version, data[:end], 0)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=12)
@given(garbage=st.binary(max_size=60))
def test_fm03_garbage_is_a_request_or_a_wire_error(version: int, garbage: bytes) -> None:
    try:
        parse_produce(version, garbage, 0)
    except WireError:
        return


@pytest.mark.parametrize("length", [-1, 2**31 - 1, -(2**31)])
def test_fm03_null_and_absurd_lengths(length: int) -> None:
    head = struct.pack(">hhi", -1, 1, 1000) + struct.pack(">i", length)
    if length < 0:
        assert parse_produce(8, head, 0).partitions == []
        return
    with pytest.raises(WireError, match="2147483647 declared"):
        parse_produce(8, head + bytes(50), 0)


def test_fm09_tagged_fields_of_partitions_and_topics_are_skipped() -> None:
    tags = b"\x01\x07\x02hi"
    partition = struct.pack(">i", 5) + b"\x04abc" + tags
    data = b"\0" + struct.pack(">hi", 1, 9) + b"\x02" + b"\x02t" + b"\x02" + partition + tags + tags
    (found,) = parse_produce(9, data, 0).partitions
    assert found.records is not None
    assert (found.topic, found.index, bytes(found.records)) == ("t", 5, b"abc")


ONE_TOPIC = st.lists(
    st.tuples(TEXT, st.binary(min_size=16, max_size=16), st.lists(st.tuples(INT32, RECORDS))),
    min_size=1,
    max_size=2,
)


@settings(max_examples=300)
@given(
    st.integers(9, 13),
    ONE_TOPIC,
    st.sampled_from([1, -1]),
    st.none() | TEXT,
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=2),
)
def test_the_short_way_reads_what_the_long_one_reads(
    version: int,
    topics: list[Any],
    acks: int,
    transactional_id: str | None,
    cut: int,
    changes: list[tuple[int, int]],
) -> None:
    """Also of damaged requests: nothing is taken that would be refused, nor the other way round."""
    data = bytearray(kio_request(version, topics, acks, transactional_id))
    for position, value in changes:
        data[position % len(data)] = value
    frame = memoryview(data[: len(data) - cut] if cut < len(data) else data)

    def read(how: Callable[[int, memoryview, int], ProduceRequest | None]) -> Any:
        try:
            return how(version, frame, 0)
        except (WireError, struct.error, IndexError, UnicodeDecodeError):
            return WireError

    found = read(_parse_one)
    assert found is None or found == read(_parse)


@given(st.integers(9, 13), INT32, RECORDS.filter(bool))
def test_the_short_way_is_taken(version: int, index: int, records: bytes) -> None:
    data = kio_request(version, [("topic", bytes(16), [(index, records)])], 1, None)
    found = _parse_one(version, memoryview(data), 0)
    assert found is not None
    assert bytes(found.partitions[0].records or b"") == records
