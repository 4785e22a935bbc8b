"""The fixed layouts of replication say what the general readers and writers say, or nothing."""

import struct
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.wire.test_fetch import ANSWERS, CODES, INT32, INT64, RESULTS, UUIDS
from tests.wire.test_replica_fetch import FOLLOWED, REQUESTS, TOPIC, VERSIONS

from chronik.model.limits import BRIEF_ANSWER_BYTES_MAX
from chronik.wire import replica_fetch
from chronik.wire.codec import WireError
from chronik.wire.fetch import parse_fetch
from chronik.wire.fetch_response import (
    EpochEnd,
    FetchResponse,
    FetchResult,
    plain_result,
    write_any_answer,
)
from chronik.wire.replica_fetch import ReplicaFetch, ReplicaPartition, read_fetch_answer
from chronik.wire.replica_serve import read_follower_request, write_brief_answer

RECORDS = st.lists(st.binary(max_size=90), max_size=3)
PLAIN = st.tuples(INT32, CODES, INT64, INT64, INT64, RECORDS).map(lambda one: FetchResult(*one))
USUAL = st.builds(
    ReplicaFetch,
    *[INT32, INT64, INT32, INT32, INT32, INT32, INT32],
    st.dictionaries(UUIDS, st.lists(FOLLOWED, max_size=3), max_size=1),
    st.just({}),
)


def general(topics: list[tuple[str | bytes, list[FetchResult]]], session_id: int = 0) -> bytes:
    response = FetchResponse(topics, session_id=session_id)
    return b"".join(write_any_answer(17, response))


@settings(max_examples=100)
@given(request=USUAL | REQUESTS)
def test_a_request_has_the_same_bytes_at_once_or_not(request: ReplicaFetch) -> None:
    at_once = replica_fetch._written_at_once(request)
    usual = not request.forgotten and len(request.topics) < 2
    assert at_once == (replica_fetch._written(request) if usual else None)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=50)
@given(request=USUAL | REQUESTS)
def test_a_leader_reads_a_request_as_any_other(version: int, request: ReplicaFetch) -> None:
    frame = bytearray(b"header" + replica_fetch.write_replica_fetch(version, request))
    found = read_follower_request(frame, 6)
    if found is None:
        assert request.forgotten or len(request.topics) > 1
    else:
        assert found == parse_fetch(version, frame, 6)
        assert type(found).__name__ == "FetchRequest"
        assert all(type(one).__name__ == "FetchPartition" for one in found.partitions)


@settings(max_examples=200)
@given(request=USUAL, position=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_changed_byte_is_read_alike_or_left_to_the_general_reader(
    request: ReplicaFetch, position: int, byte: int
) -> None:
    frame = bytearray(replica_fetch.write_replica_fetch(17, request))
    frame[position % len(frame)] = byte
    found = read_follower_request(frame, 0)
    if found is not None:
        assert found == parse_fetch(17, frame, 0)


@settings(max_examples=50)
@given(garbage=st.binary(max_size=200))
def test_garbage_is_no_request_of_a_follower_or_the_same_one(garbage: bytes) -> None:
    found = read_follower_request(bytearray(garbage), 0)
    if found is not None:
        assert found == parse_fetch(17, garbage, 0)


def test_a_request_cut_anywhere_is_left_to_the_general_reader() -> None:
    wanted = [ReplicaPartition(index, 3, 40, 3, 0, 1000) for index in range(2)]
    request = ReplicaFetch(2, 7, 500, 1, 1000, 9, 4, {TOPIC: wanted}, {})
    frame = bytearray(replica_fetch.write_replica_fetch(17, request))
    assert read_follower_request(frame, 0) is not None
    for end in range(len(frame)):
        assert read_follower_request(frame[:end], 0) is None
    assert read_follower_request(frame + b"\0", 0) is None


def test_many_partitions_need_a_second_byte_for_their_number() -> None:
    wanted = [ReplicaPartition(index, 3, 40, 3, 0, 1000) for index in range(127)]
    request = ReplicaFetch(2, 7, 500, 1, 1000, 9, 4, {TOPIC: wanted}, {})
    assert replica_fetch._written_at_once(request) is None
    assert replica_fetch._written_at_once(request._replace(topics={TOPIC: wanted[:126]}))
    frame = bytearray(replica_fetch.write_replica_fetch(17, request))
    assert read_follower_request(frame, 0) is None
    results = [plain_result(index, 5, 0) for index in range(127)]
    assert write_brief_answer(1, TOPIC, results) is None
    assert write_brief_answer(1, TOPIC, results[:126]) == general([(TOPIC, results[:126])], 1)


@settings(max_examples=100)
@given(session_id=INT32, topic_id=UUIDS, results=st.lists(PLAIN | RESULTS, max_size=3))
def test_a_brief_answer_has_the_bytes_of_any_other(
    session_id: int, topic_id: bytes, results: list[FetchResult]
) -> None:
    brief = write_brief_answer(session_id, topic_id, results)
    usual = FetchResult(0)
    if all(one.records is not None and one[6:] == usual[6:] for one in results):
        assert brief == general([(topic_id, results)], session_id)
    else:
        assert brief is None


def test_a_long_answer_is_not_copied() -> None:
    half = b"x" * (BRIEF_ANSWER_BYTES_MAX // 2)
    fits = [plain_result(0, 5, 0, [half]), plain_result(1, 5, 0, [memoryview(half)])]
    assert write_brief_answer(9, TOPIC, fits) == general([(TOPIC, fits)], 9)
    assert write_brief_answer(9, TOPIC, [*fits, plain_result(2, 5, 0, [b"y"])]) is None


def test_a_plain_result_is_the_usual_one() -> None:
    assert plain_result(3, 7, 2, [b"r"]) == FetchResult(3, 0, 7, 7, 2, [b"r"])
    assert plain_result(3, 7, 2) == FetchResult(3, 0, 7, 7, 2)
    assert isinstance(plain_result(3, 7, 2), FetchResult)


@settings(max_examples=100)
@given(
    topics=ANSWERS
    | st.lists(st.tuples(st.just(""), UUIDS, st.lists(PLAIN, max_size=3)), max_size=1)
)
def test_an_answer_is_read_alike_at_once_or_not(topics: list[Any]) -> None:
    body = memoryview(general([(topic_id, results) for _, topic_id, results in topics]))
    at_once = replica_fetch._read_at_once(body)
    assert at_once is None or at_once == replica_fetch._read(body)
    plain = [
        one.aborted_transactions in (None, []) and one[8:] == FetchResult(0)[8:]
        for _, _, results in topics
        for one in results
        if one.records is not None
    ]
    if len(topics) == 1 and all(plain) and len(plain) == len(topics[0][2]):
        assert at_once is not None


@settings(max_examples=200)
@given(results=st.lists(PLAIN, max_size=2), position=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_changed_byte_of_an_answer_is_read_alike_or_an_error(
    results: list[FetchResult], position: int, byte: int
) -> None:
    data = bytearray(general([(TOPIC, results)]))
    data[position % len(data)] = byte
    body = memoryview(data)
    try:
        at_once = replica_fetch._read_at_once(body)
    except (struct.error, IndexError, WireError):
        with pytest.raises(WireError):
            read_fetch_answer(17, body)
        with pytest.raises((struct.error, IndexError, WireError)):
            replica_fetch._read(body)
    else:
        assume(at_once is not None)
        assert at_once == replica_fetch._read(body)


def test_a_divergence_is_left_to_the_general_writer_and_reader() -> None:
    cut = FetchResult(1, diverging_epoch=EpochEnd(3, 40))
    assert write_brief_answer(9, TOPIC, [cut]) is None
    body = memoryview(general([(TOPIC, [cut])]))
    assert replica_fetch._read_at_once(body) is None
    assert read_fetch_answer(17, body).partitions[0].diverging_epoch == EpochEnd(3, 40)
