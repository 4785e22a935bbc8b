"""What consumers mostly ask and get has a short way, which says the same as the general one."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.test_fetch import CODES, INT32, INT64, NODES, RESULTS, UUIDS

from chronik.wire import fetch
from chronik.wire.endpoints import NodeEndpoint
from chronik.wire.fetch import parse_fetch
from chronik.wire.fetch_response import (
    FetchResponse,
    FetchResult,
    plain_result,
    write_any_answer,
    write_fetch_response,
    write_plain_answer,
)
from chronik.wire.primitives import WireError

VERSIONS = range(15, 19)
TOPIC = bytes(range(16))
ROWS = st.lists(st.tuples(INT32, INT32, INT64, INT32, INT64, INT32), max_size=4)
NUMBERS = st.tuples(INT32, INT32, INT32, st.integers(0, 1), INT32, INT32)
RECORDS = st.lists(st.binary(max_size=90), max_size=3)
PLAIN = st.tuples(INT32, CODES, INT64, INT64, INT64, RECORDS).map(lambda one: FetchResult(*one))


def request(
    numbers: tuple[int, ...], rows: list[tuple[int, ...]], topic_id: bytes = TOPIC
) -> bytes:
    partitions = b"".join(struct.pack(">iiqiqiB", *row, 0) for row in rows)
    head = struct.pack(">iiibii", *numbers)
    return head + b"\2" + topic_id + bytes([len(rows) + 1]) + partitions + b"\0\1\1\0"


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=50)
@given(numbers=NUMBERS, rows=ROWS, topic_id=UUIDS)
def test_a_usual_request_is_read_as_any_other(
    version: int, numbers: tuple[int, ...], rows: list[tuple[int, ...]], topic_id: bytes
) -> None:
    frame = b"header" + request(numbers, rows, topic_id)
    found = fetch._parse_one(frame, 6)
    assert found == fetch._parse(version, frame, 6)
    assert found == parse_fetch(version, memoryview(frame), 6)
    assert found is not None
    assert [one[:8] for one in found.partitions] == [(None, topic_id, *row) for row in rows]
    assert found[2:8] == numbers
    assert type(found).__name__ == "FetchRequest"
    assert all(type(one).__name__ == "FetchPartition" for one in found.partitions)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=100)
@given(rows=ROWS, position=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_changed_byte_is_read_alike_or_left_to_the_general_reader(
    version: int, rows: list[tuple[int, ...]], position: int, byte: int
) -> None:
    frame = bytearray(request((500, 1, 1000, 1, 0, -1), rows))
    frame[position % len(frame)] = byte
    found = fetch._parse_one(frame, 0)
    if found is not None:
        assert found == fetch._parse(version, frame, 0)


def test_a_usual_request_cut_or_lengthened_is_left_to_the_general_reader() -> None:
    frame = request((500, 1, 1000, 1, 0, -1), [(1, 2, 3, 4, 5, 6), (7, 8, 9, 10, 11, 12)])
    for end in range(len(frame)):
        assert fetch._parse_one(frame[:end], 0) is None
        with pytest.raises(WireError):
            parse_fetch(17, frame[:end], 0)
    assert fetch._parse_one(frame + b"\0", 0) is None  # read, and what follows is ignored
    assert parse_fetch(17, frame + b"\0", 0) == parse_fetch(17, frame, 0)


@settings(max_examples=200)
@given(session_id=INT32, topic_id=UUIDS, results=st.lists(PLAIN | RESULTS, max_size=3))
def test_a_plain_answer_has_the_bytes_of_any_other(
    session_id: int, topic_id: bytes, results: list[FetchResult]
) -> None:
    plain = write_plain_answer(session_id, topic_id, results)
    if all(one.records is not None and one[6:] == FetchResult(0)[6:] for one in results):
        assert plain is not None
        response = FetchResponse([(topic_id, results)], session_id=session_id)
        assert b"".join(plain) == b"".join(write_any_answer(17, response))
    else:
        assert plain is None


@pytest.mark.parametrize("version", range(13, 19))
@settings(max_examples=50)
@given(
    topics=st.lists(st.tuples(UUIDS, st.lists(PLAIN, max_size=3)), max_size=2),
    session_id=INT32,
    code=st.just(0) | CODES,
    throttle_ms=st.sampled_from([0, 25]),
    nodes=st.just([]) | NODES,
)
def test_every_answer_has_the_bytes_of_the_general_writer(
    version: int,
    topics: list[tuple[str | bytes, list[FetchResult]]],
    session_id: int,
    code: int,
    throttle_ms: int,
    nodes: list[NodeEndpoint],
) -> None:
    response = FetchResponse(topics, code, session_id, throttle_ms, nodes)
    found = b"".join(write_fetch_response(version, response))
    assert found == b"".join(write_any_answer(version, response))


def test_many_results_need_a_second_byte_for_their_number() -> None:
    results = [plain_result(index, 5, 0) for index in range(127)]
    assert write_plain_answer(1, TOPIC, results) is None
    assert write_plain_answer(1, TOPIC, results[:126]) is not None
    for some in (results, results[:126]):
        response = FetchResponse([(TOPIC, some)], session_id=1)
        assert write_fetch_response(17, response) == write_any_answer(17, response)
