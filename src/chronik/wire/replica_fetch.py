"""Fetch v15-18 as a follower writes it and reads the answer: once per replicated batch, by hand.

These versions name topics by id (KIP-516) and the follower in a tagged field (KIP-903). What no
follower says (directory id, its own watermark, rack, cluster id) is left at the default. Records
stay slices of the frame that came.

What mostly is said, nothing new or partitions of one topic, has a fixed layout and is written and
read with it (`_written_at_once`, `_read_at_once`); the rest of the module does the same for all.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from chronik.wire.fetch import tag_positions
from chronik.wire.fetch_layouts import (
    ANSWER_AND_TOPIC,
    END,
    HEAD_AND_TOPIC,
    LENGTH_MAX,
    NO_TOPIC_THEN,
    ONE,
    PARTITION,
    TOPIC_THEN,
)
from chronik.wire.fetch_response import NO_EPOCH_END, EpochEnd
from chronik.wire.primitives import (
    WireError,
    read_length,
    read_uvarint,
    rest_of_uvarint,
    short,
    skip_tags,
    uvarint,
)

FIRST_VERSION: Final = 15
LAST_VERSION: Final = 18
_UUID_BYTES: Final = 16

_HEAD: Final = struct.Struct(">iiibii")
_TAIL: Final = struct.Struct(">BBBBiqB")
"""Empty rack id; then one tagged field, number 1, of 13 bytes: follower, its epoch, no tags."""
_ANSWER: Final = struct.Struct(">ihi")
_RESULT: Final = struct.Struct(">ihqqqB")
_EPOCH_END: Final = struct.Struct(">iq")
_ABORTED_BYTES: Final = 16
_REPLICA_BYTES: Final = 4

_ANSWER_TOPIC_BYTES: Final = ANSWER_AND_TOPIC.size
_RESULT_AND_SIZE: Final = struct.Struct(">ihqqqBiB")
"""Up to the first byte of the records' size."""
_RESULT_AND_SIZE_BYTES: Final = _RESULT_AND_SIZE.size


class ReplicaPartition(NamedTuple):
    """From where a follower asks: all before `fetch_offset` is on its disk."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class ReplicaFetch(NamedTuple):
    """A follower's request."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    topics: Mapping[bytes, Sequence[ReplicaPartition]]
    """By topic id."""
    forgotten: Mapping[bytes, Sequence[int]]


class Fetched(NamedTuple):
    """What the leader says of one partition."""

    topic_id: bytes
    index: int  # type: ignore[assignment]  # hides tuple.index
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging_epoch: EpochEnd
    records: memoryview


class FetchAnswer(NamedTuple):
    """The leader's answer; partitions in the order of the bytes."""

    error_code: int
    session_id: int
    partitions: list[Fetched]


def write_replica_fetch(version: int, request: ReplicaFetch) -> bytes:
    """The body of the request."""
    assert FIRST_VERSION <= version <= LAST_VERSION, version
    return _written_at_once(request) or _written(request)


def _written_at_once(request: ReplicaFetch) -> bytes | None:
    replica, replica_epoch, wait_ms, least, most, session, epoch, topics, forgotten = request
    if forgotten or len(topics) > 1:
        return None
    if not topics:
        head = _HEAD.pack(wait_ms, least, most, 0, session, epoch)
        return head + END.pack(NO_TOPIC_THEN, replica, replica_epoch, 0)
    ((topic_id, partitions),) = topics.items()
    length = len(partitions) + 1
    if length > LENGTH_MAX:
        return None
    out = HEAD_AND_TOPIC.pack(wait_ms, least, most, 0, session, epoch, ONE, topic_id, length)
    for partition in partitions:
        out += PARTITION.pack(*partition, 0)
    return out + END.pack(TOPIC_THEN, replica, replica_epoch, 0)


def _written(request: ReplicaFetch) -> bytes:
    replica_id, replica_epoch, wait_ms, min_bytes, max_bytes, session, epoch, *_ = request
    pieces = [
        _HEAD.pack(wait_ms, min_bytes, max_bytes, 0, session, epoch),
        uvarint(len(request.topics) + 1),
    ]
    for topic_id, partitions in request.topics.items():
        pieces += (topic_id, uvarint(len(partitions) + 1))
        pieces += [PARTITION.pack(*partition, 0) for partition in partitions]
        pieces.append(b"\0")
    pieces.append(uvarint(len(request.forgotten) + 1))
    for topic_id, indexes in request.forgotten.items():
        count = len(indexes)
        pieces += (topic_id, uvarint(count + 1), struct.pack(f">{count}iB", *indexes, 0))
    pieces.append(_TAIL.pack(1, 1, 1, 13, replica_id, replica_epoch, 0))
    return b"".join(pieces)


def read_fetch_answer(version: int, body: memoryview) -> FetchAnswer:
    """The answer whose body this is."""
    assert FIRST_VERSION <= version <= LAST_VERSION, version
    try:
        return _read_at_once(body) or _read(body)
    except (struct.error, IndexError) as error:
        raise WireError(f"Fetch v{version}: {error} in {len(body)} bytes") from error


def _read_at_once(body: memoryview) -> FetchAnswer | None:
    """None where it is not the partitions of one topic, or one has more to say than that."""
    end = len(body)
    if end < _ANSWER_TOPIC_BYTES:
        return None
    _, error_code, session_id, topics, topic_id, length = ANSWER_AND_TOPIC.unpack_from(body)
    if topics != ONE or not 0 < length <= LENGTH_MAX:
        return None
    position = _ANSWER_TOPIC_BYTES
    partitions: list[Fetched] = []
    for _ in range(length - 1):
        index, code, watermark, _, log_start, aborted, _, size = _RESULT_AND_SIZE.unpack_from(
            body, position
        )
        if aborted > 1 or not size:
            return None
        position += _RESULT_AND_SIZE_BYTES
        if size > 127:
            size, position = rest_of_uvarint(body, position, size)
        stop = position + size - 1
        if stop >= end or body[stop]:
            return None
        records = body[position:stop]
        fetched = (topic_id, index, code, watermark, log_start, NO_EPOCH_END, records)
        partitions.append(tuple.__new__(Fetched, fetched))
        position = stop + 1
    if body[position] or body[position + 1]:
        return None
    return tuple.__new__(FetchAnswer, (error_code, session_id, partitions))


def _read(body: memoryview) -> FetchAnswer:
    _, error_code, session_id = _ANSWER.unpack_from(body)
    partitions: list[Fetched] = []
    count, position = read_length(body, _ANSWER.size, True)
    for _ in range(count):
        topic_id = bytes(body[position : position + _UUID_BYTES])
        position += _UUID_BYTES
        results, position = read_length(body, position, True, _RESULT.size)
        for _ in range(results):
            position = _read_partition(body, position, topic_id, partitions)
        position = skip_tags(body, position)
    skip_tags(body, position)
    return FetchAnswer(error_code, session_id, partitions)


def _read_partition(
    body: memoryview, position: int, topic_id: bytes, partitions: list[Fetched]
) -> int:
    index, error_code, watermark, _, log_start, aborted = _RESULT.unpack_from(body, position)
    position += _RESULT.size
    if aborted > 1:
        position = _skip_aborted(body, position - 1)
    size, position = read_uvarint(body, position + _REPLICA_BYTES)
    start = position
    position += size - 1 if size else 0
    if position >= len(body):
        raise short("records", size - 1, start, len(body))
    diverging = NO_EPOCH_END
    if body[position]:
        diverging = _diverging_epoch(body, position)
        end = skip_tags(body, position)
    else:
        end = position + 1
    records = body[start:position]
    partitions.append(
        Fetched(topic_id, index, error_code, watermark, log_start, diverging, records)
    )
    return end


def _skip_aborted(body: memoryview, position: int) -> int:
    count, position = read_length(body, position, True, _ABORTED_BYTES + 1)
    for _ in range(count):
        position = skip_tags(body, position + _ABORTED_BYTES)
    return position


def _diverging_epoch(body: memoryview, position: int) -> EpochEnd:
    for tag, start, _ in tag_positions(body, position):
        if tag == 0:
            return EpochEnd(*_EPOCH_END.unpack_from(body, start))
    return NO_EPOCH_END
