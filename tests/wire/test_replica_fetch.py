"""A follower's Fetch by hand: written as kio and the generated codec write it, read as they do."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.test_fetch import (
    ANSWERS,
    CODES,
    INT32,
    INT64,
    NODES,
    UUIDS,
    kio_request,
    kio_response,
)

from chronik.wire.codec import WireError, encode
from chronik.wire.fetch import FetchPartition
from chronik.wire.fetch_response import (
    NO_EPOCH_END,
    EpochEnd,
    FetchResponse,
    FetchResult,
    write_fetch_response,
)
from chronik.wire.messages import fetch as messages
from chronik.wire.replica_fetch import (
    FIRST_VERSION,
    LAST_VERSION,
    Fetched,
    ReplicaFetch,
    ReplicaPartition,
    read_fetch_answer,
    write_replica_fetch,
)

VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
TOPIC = bytes(range(16))
FOLLOWED = st.builds(ReplicaPartition, INT32, INT32, INT64, INT32, INT64, INT32)
REQUESTS = st.builds(
    ReplicaFetch,
    st.integers(0, 2**31 - 1),
    INT64,
    INT32,
    INT32,
    INT32,
    INT32,
    INT32,
    st.dictionaries(UUIDS, st.lists(FOLLOWED, max_size=3), max_size=3),
    st.dictionaries(UUIDS, st.lists(INT32, max_size=3), max_size=2),
)


def by_kio(version: int, request: ReplicaFetch) -> bytes:
    topics = [
        (
            "",
            topic_id,
            [FetchPartition(None, topic_id, *partition) for partition in partitions],
        )
        for topic_id, partitions in request.topics.items()
    ]
    forgotten = [("", topic_id, indexes) for topic_id, indexes in request.forgotten.items()]
    return kio_request(version, topics, forgotten, (*request[:5], 0, *request[5:7]), ["", None])


def generated(version: int, request: ReplicaFetch) -> bytes:
    return encode(
        messages.FetchRequest(
            replica_state=messages.ReplicaState(request.replica_id, request.replica_epoch),
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=[
                messages.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        messages.FetchPartition(
                            partition=one.index,
                            current_leader_epoch=one.current_leader_epoch,
                            fetch_offset=one.fetch_offset,
                            last_fetched_epoch=one.last_fetched_epoch,
                            log_start_offset=one.log_start_offset,
                            partition_max_bytes=one.max_bytes,
                        )
                        for one in partitions
                    ],
                )
                for topic_id, partitions in request.topics.items()
            ],
            forgotten_topics_data=[
                messages.ForgottenTopic(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in request.forgotten.items()
            ],
        ),
        version,
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(request=REQUESTS)
def test_requests_are_written_as_the_others_write_them(version: int, request: ReplicaFetch) -> None:
    data = write_replica_fetch(version, request)
    assert data == by_kio(version, request)
    assert data == generated(version, request)


def expected(topic_id: bytes, result: FetchResult) -> Fetched:
    return Fetched(
        topic_id,
        result.index,
        result.error_code,
        result.high_watermark,
        result.log_start_offset,
        result.diverging_epoch,
        memoryview(b"".join(result.records or ())),
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(topics=ANSWERS, error_code=CODES, session_id=INT32, nodes=NODES)
def test_answers_are_read_as_kio_writes_them(
    version: int, topics: list[Any], error_code: int, session_id: int, nodes: list[Any]
) -> None:
    data = kio_response(version, topics, error_code, session_id, nodes) + b"trailing"
    answer = read_fetch_answer(version, memoryview(data))
    assert (answer.error_code, answer.session_id) == (error_code, session_id)
    assert answer.partitions == [
        expected(topic_id, result) for _, topic_id, results in topics for result in results
    ]


def test_records_stay_slices_of_the_frame() -> None:
    results = [FetchResult(0, records=[b"one", b"two"]), FetchResult(1, records=None)]
    buffers = write_fetch_response(17, FetchResponse([(TOPIC, results)], session_id=9))
    frame = bytearray(b"head" + b"".join(buffers))
    first, second = read_fetch_answer(17, memoryview(frame)[4:]).partitions
    assert (bytes(first.records), bytes(second.records)) == (b"onetwo", b"")
    frame[frame.index(b"one")] = ord("O")
    assert bytes(first.records) == b"Onetwo"


@pytest.mark.parametrize("version", VERSIONS)
def test_fm03_an_answer_cut_anywhere_is_a_wire_error(version: int) -> None:
    cut = EpochEnd(3, 40)
    results = [
        FetchResult(0, 0, 5, 5, 0, [b"records"], [(1, 2), (3, 4)]),
        FetchResult(1, diverging_epoch=cut),
        FetchResult(2, 0, 7, 7, 0, [b"x" * 200]),
    ]
    data = b"".join(write_fetch_response(version, FetchResponse([(TOPIC, results)])))
    found = read_fetch_answer(version, memoryview(data)).partitions
    assert [one.diverging_epoch for one in found] == [NO_EPOCH_END, cut, NO_EPOCH_END]
    for end in range(len(data)):
        with pytest.raises(WireError):
            read_fetch_answer(version, memoryview(data)[:end])


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=50)
@given(garbage=st.binary(max_size=120))
def test_fm03_garbage_is_an_answer_or_a_wire_error(version: int, garbage: bytes) -> None:
    try:
        read_fetch_answer(version, memoryview(garbage))
    except WireError:
        return
