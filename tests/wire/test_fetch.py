"""The hand-written Fetch against kio, byte for byte, in every version."""

import dataclasses
import datetime
import io
import struct
import uuid
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.constants import uuid_zero

from chronik.wire.codec import WireError
from chronik.wire.endpoints import NO_LEADER, Leader, NodeEndpoint
from chronik.wire.fetch import NO_HIGH_WATERMARK, FetchPartition, FetchRequest, parse_fetch
from chronik.wire.fetch_response import (
    NO_EPOCH_END,
    NO_SNAPSHOT,
    EpochEnd,
    FetchResponse,
    FetchResult,
    SnapshotId,
    write_fetch_response,
)
from chronik.wire.primitives import ZERO_UUID

VERSIONS = range(4, 19)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=12) | st.just("long" * 50)
UUIDS = st.binary(min_size=16, max_size=16)
MARKS = st.just(NO_HIGH_WATERMARK) | INT64
PARTITIONS = st.builds(
    FetchPartition,
    st.just("t"),
    st.just(b""),
    INT32,
    INT32,
    INT64,
    INT32,
    INT64,
    INT32,
    st.just(ZERO_UUID) | UUIDS,
    MARKS,
)
TOPICS = st.lists(st.tuples(TEXT, UUIDS, st.lists(PARTITIONS, max_size=3)), max_size=3)
FORGOTTEN = st.lists(st.tuples(TEXT, UUIDS, st.lists(INT32, max_size=3)), max_size=2)
NUMBERS = st.tuples(INT32, INT64, INT32, INT32, INT32, st.integers(0, 1), INT32, INT32)
CODES = st.sampled_from([int(code.value) for code in ErrorCode])
RESULTS = st.builds(
    FetchResult,
    INT32,
    CODES,
    INT64,
    INT64,
    INT64,
    st.none() | st.lists(st.binary(max_size=90), max_size=3),
    st.none() | st.lists(st.tuples(INT64, INT64), max_size=2),
    INT32,
    st.just(NO_EPOCH_END) | st.builds(EpochEnd, INT32, INT64),
    st.just(NO_LEADER) | st.builds(Leader, INT32, INT32),
    st.just(NO_SNAPSHOT) | st.builds(SnapshotId, INT64, INT32),
)
ANSWERS = st.lists(st.tuples(TEXT, UUIDS, st.lists(RESULTS, max_size=3)), max_size=3)
NODES = st.lists(st.builds(NodeEndpoint, INT32, TEXT, INT32, st.none() | TEXT), max_size=2)


def make(cls: Any, **values: Any) -> Any:
    """An entity of a kio class from those values that its version has."""
    names = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in values.items() if name in names})


def inner(cls: Any, name: str) -> Any:
    """The class that a field of a kio class holds; None in versions without the field."""
    kind = {field.name: field.type for field in dataclasses.fields(cls)}.get(name)
    while get_args(kind):
        kind = get_args(kind)[0]
    return kind


def written(entity: Any) -> bytes:
    with io.BytesIO() as sink:
        entity_writer(type(entity))(sink, entity)
        return sink.getvalue()


def kio_uuid(value: bytes) -> uuid.UUID | None:
    return None if uuid.UUID(bytes=value) == uuid_zero else uuid.UUID(bytes=value)


def kio_request(
    version: int,
    topics: list[Any],
    forgotten: list[Any],
    numbers: tuple[int, ...],
    texts: list[Any],
) -> bytes:
    cls = load_request_schema(1, version)
    topic_cls, forgotten_cls = inner(cls, "topics"), inner(cls, "forgotten_topics_data")
    state_cls = inner(cls, "replica_state")
    return written(
        make(
            cls,
            replica_id=numbers[0],
            replica_state=state_cls
            and make(state_cls, replica_id=numbers[0], replica_epoch=numbers[1]),
            max_wait=datetime.timedelta(milliseconds=numbers[2]),
            min_bytes=numbers[3],
            max_bytes=numbers[4],
            isolation_level=numbers[5],
            session_id=numbers[6],
            session_epoch=numbers[7],
            topics=tuple(kio_topic(topic_cls, *topic) for topic in topics),
            forgotten_topics_data=tuple(
                make(forgotten_cls, topic=name, topic_id=kio_uuid(key), partitions=tuple(indexes))
                for name, key, indexes in (forgotten if forgotten_cls else ())
            ),
            rack_id=texts[0],
            cluster_id=texts[1],
        )
    )


def kio_topic(cls: Any, name: str, topic_id: bytes, partitions: list[FetchPartition]) -> Any:
    partition_cls = inner(cls, "partitions")
    made = tuple(
        make(
            partition_cls,
            partition=item.index,
            current_leader_epoch=item.current_leader_epoch,
            fetch_offset=item.fetch_offset,
            last_fetched_epoch=item.last_fetched_epoch,
            log_start_offset=item.log_start_offset,
            partition_max_bytes=item.max_bytes,
            replica_directory_id=kio_uuid(item.replica_directory_id),
            high_watermark=item.high_watermark,
        )
        for item in partitions
    )
    return make(cls, topic=name, topic_id=kio_uuid(topic_id), partitions=made)


def expected_partition(
    version: int, name: str, topic_id: bytes, item: FetchPartition
) -> FetchPartition:
    """What is left of a partition in a version."""
    by_id = version >= 13
    return item._replace(
        topic=None if by_id else name,
        topic_id=topic_id if by_id else None,
        current_leader_epoch=item.current_leader_epoch if version >= 9 else -1,
        last_fetched_epoch=item.last_fetched_epoch if version >= 12 else -1,
        log_start_offset=item.log_start_offset if version >= 5 else -1,
        replica_directory_id=item.replica_directory_id if version >= 17 else ZERO_UUID,
        high_watermark=item.high_watermark if version >= 18 else NO_HIGH_WATERMARK,
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=10)
@given(
    topics=TOPICS,
    forgotten=FORGOTTEN,
    numbers=NUMBERS,
    texts=st.tuples(TEXT, st.none() | TEXT).map(list),
)
def test_requests_are_read_as_kio_writes_them(
    version: int,
    topics: list[Any],
    forgotten: list[Any],
    numbers: tuple[int, ...],
    texts: list[Any],
) -> None:
    data = b"head" + kio_request(version, topics, forgotten, numbers, texts) + b"trailing"
    by_id, session = version >= 13, version >= 7
    assert parse_fetch(version, memoryview(data), 4) == FetchRequest(
        numbers[0],
        numbers[1] if version >= 15 else -1,
        numbers[2],
        numbers[3],
        numbers[4],
        numbers[5],
        numbers[6] if session else 0,
        numbers[7] if session else -1,
        [expected_partition(version, n, key, item) for n, key, items in topics for item in items],
        [(key if by_id else n, i) for n, key, indexes in forgotten for i in indexes if session],
        texts[0] if version >= 11 else "",
        texts[1] if version >= 12 else None,
    )


def kio_result(cls: Any, result: FetchResult) -> Any:
    parts: dict[str, EpochEnd | Leader | SnapshotId] = {
        "diverging_epoch": result.diverging_epoch,
        "current_leader": result.current_leader,
        "snapshot_id": result.snapshot_id,
    }
    nested = {
        name: make(inner(cls, name), **value._asdict())
        for name, value in parts.items()
        if inner(cls, name)
    }
    aborted_cls, aborted = inner(cls, "aborted_transactions"), result.aborted_transactions
    return make(
        cls,
        partition_index=result.index,
        error_code=ErrorCode(result.error_code),
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else tuple(make(aborted_cls, producer_id=p, first_offset=o) for p, o in aborted),
        preferred_read_replica=result.preferred_read_replica,
        records=None if result.records is None else b"".join(result.records),
        **nested,
    )


def kio_response(
    version: int, topics: list[Any], error_code: int, session_id: int, nodes: list[NodeEndpoint]
) -> bytes:
    cls = load_response_schema(1, version)
    topic_cls, node_cls = inner(cls, "responses"), inner(cls, "node_endpoints")
    result_cls = inner(topic_cls, "partitions")
    responses = tuple(
        make(
            topic_cls,
            topic=name,
            topic_id=kio_uuid(topic_id),
            partitions=tuple(kio_result(result_cls, result) for result in results),
        )
        for name, topic_id, results in topics
    )
    return written(
        make(
            cls,
            throttle_time=datetime.timedelta(milliseconds=25),
            error_code=ErrorCode(error_code),
            session_id=session_id,
            responses=responses,
            node_endpoints=tuple(
                make(node_cls, **node._asdict()) for node in (nodes if node_cls else ())
            ),
        )
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=10)
@given(topics=ANSWERS, error_code=CODES, session_id=INT32, nodes=NODES)
def test_responses_are_written_as_kio_writes_them(
    version: int, topics: list[Any], error_code: int, session_id: int, nodes: list[NodeEndpoint]
) -> None:
    named = [(topic_id if version >= 13 else name, results) for name, topic_id, results in topics]
    answer = FetchResponse(named, error_code, session_id, 25, nodes)
    data = b"".join(write_fetch_response(version, answer))
    assert data == kio_response(version, topics, error_code, session_id, nodes)


def test_fm09_fetch_is_flexible_from_v12() -> None:
    plain = b"".join(write_fetch_response(11, FetchResponse()))
    assert plain == struct.pack(">ihii", 0, 0, 0, 0)
    flexible = b"".join(write_fetch_response(12, FetchResponse()))
    assert flexible == plain[:-4] + b"\x01\x00"


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_handed_on_as_they_are(version: int) -> None:
    pieces = [memoryview(b"batch one"), memoryview(b"batch two")]
    results = [FetchResult(0, records=pieces), FetchResult(1), FetchResult(2, records=pieces[:1])]
    topic: str | bytes = bytes(16) if version >= 13 else "t"
    buffers = write_fetch_response(version, FetchResponse([(topic, results)]))
    views = [buffer for buffer in buffers if isinstance(buffer, memoryview)]
    assert [id(view) for view in views] == [id(view) for view in (*pieces, pieces[0])]


@pytest.mark.parametrize("version", VERSIONS)
def test_fm03_a_request_cut_anywhere_is_a_wire_error(version: int) -> None:
    partition = FetchPartition("t", b"", 1, 2, 3, 4, 5, 6, bytes(range(16)), 8)
    topics = [("topic", bytes(range(16)), [partition, partition])]
    forgotten = [("other", bytes(range(16)), [1, 2])]
    data = kio_request(version, topics, forgotten, (1, 2, 3, 4, 5, 1, 6, 7), ["rack", "cluster"])
    # Truncated replica state in the closing tagged section is caught by its declared size.
    for end in range(len(data)):
        with pytest.raises(WireError):
            parse_fetch(version, data[:end], 0)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=10)
@given(garbage=st.binary(max_size=80))
def test_fm03_garbage_is_a_request_or_a_wire_error(version: int, garbage: bytes) -> None:
    try:
        parse_fetch(version, garbage, 0)
    except WireError:
        return


@pytest.mark.parametrize("length", [-1, 2**31 - 1, -(2**31)])
def test_fm03_null_and_absurd_lengths(length: int) -> None:
    head = struct.pack(">iiiib", -1, 500, 1, 1000, 0) + struct.pack(">i", length)
    if length < 0:
        assert parse_fetch(4, head, 0).partitions == []
        return
    with pytest.raises(WireError, match="2147483647 declared"):
        parse_fetch(4, head + bytes(50), 0)


def test_fm09_tagged_fields_that_nobody_knows_are_skipped() -> None:
    tags = b"\x01\x63\x02hi"
    head = struct.pack(">iiibii", 500, 1, 1000, 0, 0, -1)
    partition = struct.pack(">iiqiqi", 7, -1, 42, -1, -1, 100) + tags
    topic = bytes(16) + b"\x02" + partition + tags
    data = head + b"\x02" + topic + b"\x01" + b"\x01" + tags
    (found,) = parse_fetch(18, data, 0).partitions
    assert (found.index, found.fetch_offset, found.max_bytes) == (7, 42, 100)
