"""Produce v3-13 by hand: the records stay where they are in the frame, nothing is built per record.

v3-8 have 16 and 32 bit lengths, v9+ compact ones and tagged fields, v13 topic ids in place of
names (KIP-516). Answers: log start offset from v5, record errors (KIP-467) from v8, leaders
(KIP-951) from v10.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from chronik.wire.endpoints import NO_LEADER, Leader, NodeEndpoint, endpoints_body, leader_body
from chronik.wire.primitives import (
    Buffer,
    WireError,
    array_length,
    read_length,
    read_string,
    read_uvarint,
    rest_of_uvarint,
    short,
    skip_tags,
    string,
    tagged,
)

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 13
_FLEXIBLE = 9
_TOPIC_ID = 13

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_ONE_START: Final = struct.Struct(">BhiB")
"""Transactional id (null), acks, timeout, number of topics."""
_ONE_PARTITION: Final = struct.Struct(">BiB")
"""Number of partitions, index, first byte of the records' length."""
_INDEX_SIZE: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")
_RESULT_V3: Final = struct.Struct(">ihqq")
_RESULT_V5: Final = struct.Struct(">ihqqq")
_RESULT_V8: Final = struct.Struct(">ihqqqih")
_RESULT_V9: Final = struct.Struct(">ihqqqBBB")
_ONE_RESULT: Final = struct.Struct(">ihqqqB2xx4xx")
"""Result, tags of the topic, throttle time, tags of the answer: zeros but for the first six."""


class ProducePartition(NamedTuple):
    """What one partition is to append."""

    topic: str | None
    topic_id: bytes | None
    index: int  # type: ignore[assignment]  # hides tuple.index
    records: memoryview | None


class ProduceRequest(NamedTuple):
    """A whole request; partitions in the order of the bytes, hence grouped by topic."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[ProducePartition]


class PartitionResult(NamedTuple):
    """How it went for one partition."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    """Index in the batch and message of each record that was refused."""
    error_message: str | None = None
    current_leader: Leader = NO_LEADER


def parse_produce(version: int, frame: Buffer, position: int) -> ProduceRequest:
    """The request whose body starts at `position`; its records are slices of `frame`."""
    assert FIRST_VERSION <= version <= LAST_VERSION, version
    view = frame if isinstance(frame, memoryview) else memoryview(frame)
    try:
        one = _parse_one(version, view, position) if version >= _FLEXIBLE else None
        return one or _parse(version, view, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"Produce v{version}: {error} in {len(frame)} bytes") from error


def _parse_one(version: int, frame: memoryview, position: int) -> ProduceRequest | None:
    """The request that comes most, for one partition, in one go; None: `_parse` reads it."""
    transactional_id, acks, timeout_ms, topics = _ONE_START.unpack_from(frame, position)
    if transactional_id or topics != 2:  # lengths are one more than what they count
        return None
    position += _ONE_START.size
    topic: str | None = None
    topic_id: bytes | None = None
    if version >= _TOPIC_ID:
        stop = position + 16
        topic_id = bytes(frame[position:stop])
    else:
        stop = position + frame[position]
        if not position < stop < position + 128:
            return None
        topic = str(frame[position + 1 : stop], "utf-8")
    if stop + _ONE_PARTITION.size > len(frame):
        return None
    partitions, index, size = _ONE_PARTITION.unpack_from(frame, stop)
    position = stop + _ONE_PARTITION.size
    if size > 127:
        size, position = rest_of_uvarint(frame, position, size)
    stop = position + size - 1
    if partitions != 2 or not size or bytes(frame[stop : stop + 3]) != b"\0\0\0":
        return None  # other partitions, no records, too few bytes, or tagged fields
    one = tuple.__new__(ProducePartition, (topic, topic_id, index, frame[position:stop]))
    return tuple.__new__(ProduceRequest, (None, acks, timeout_ms, [one]))


def _parse(version: int, frame: memoryview, position: int) -> ProduceRequest:
    flexible = version >= _FLEXIBLE
    transactional_id, position = read_string(frame, position, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topics, position = read_length(frame, position + _ACKS_TIMEOUT.size, flexible)
    partitions: list[ProducePartition] = []
    for _ in range(topics):
        topic: str | None = None
        topic_id: bytes | None = None
        if version >= _TOPIC_ID:
            topic_id, position = _topic_id(frame, position)
        else:
            topic, position = _topic(frame, position, flexible)
        read = _read_compact if flexible else _read_legacy
        position = read(frame, position, topic, topic_id, partitions)
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _topic_id(frame: memoryview, position: int) -> tuple[bytes, int]:
    topic_id = bytes(frame[position : position + 16])
    if len(topic_id) < 16:
        raise short("topic id", 16, position, len(frame))
    return topic_id, position + 16


def _topic(frame: memoryview, position: int, flexible: bool) -> tuple[str, int]:
    topic, position = read_string(frame, position, flexible)
    if topic is None:
        raise WireError(f"topic name: null before byte {position}")
    return topic, position


def _read_legacy(
    frame: memoryview,
    position: int,
    topic: str | None,
    topic_id: bytes | None,
    partitions: list[ProducePartition],
) -> int:
    count, position = read_length(frame, position, False, 8)
    end = len(frame)
    for _ in range(count):
        index, size = _INDEX_SIZE.unpack_from(frame, position)
        position += 8
        records = None
        if size >= 0:
            if size > end - position:
                raise short("records", size, position, end)
            records = frame[position : position + size]
            position += size
        partitions.append(ProducePartition(topic, topic_id, index, records))
    return position


def _read_compact(
    frame: memoryview,
    position: int,
    topic: str | None,
    topic_id: bytes | None,
    partitions: list[ProducePartition],
) -> int:
    count, position = read_length(frame, position, True, 6)
    end = len(frame)
    for _ in range(count):
        (index,) = _INT32.unpack_from(frame, position)
        size, position = read_uvarint(frame, position + 4)
        records: memoryview | None = None
        if size:
            size -= 1
            if size > end - position:
                raise short("records", size, position, end)
            records = frame[position : position + size]
            position += size
        position = skip_tags(frame, position) if frame[position] else position + 1
        partitions.append(ProducePartition(topic, topic_id, index, records))
    return skip_tags(frame, position) if frame[position] else position + 1


def write_produce_response(
    version: int,
    topics: Sequence[tuple[str | bytes, Sequence[PartitionResult]]],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The body of the answer; topics by id (16 bytes) from v13 on, by name before."""
    assert FIRST_VERSION <= version <= LAST_VERSION, version
    flexible = version >= _FLEXIBLE
    pieces = [array_length(len(topics), flexible)]
    for topic, results in topics:
        pieces.append(string(topic, flexible) if isinstance(topic, str) else topic)
        pieces.append(array_length(len(results), flexible))
        pieces += [_result(version, result) for result in results]
        if flexible:
            pieces.append(b"\0")
    pieces.append(_INT32.pack(throttle_time_ms))
    if flexible:
        shown = node_endpoints and version >= 10
        pieces.append(tagged([(0, endpoints_body(node_endpoints))]) if shown else b"\0")
    return b"".join(pieces)


def write_one_result(
    version: int, topic: str | bytes, index: int, base: int, time_ms: int, start: int
) -> bytes:
    """The same for one partition where all went well: by far the most frequent answer."""
    if version < _FLEXIBLE:
        return write_produce_response(
            version, [(topic, [PartitionResult(index, 0, base, time_ms, start)])]
        )
    result = _ONE_RESULT.pack(index, 0, base, time_ms, start, 1)
    if isinstance(topic, bytes):
        return b"\2%b\2%b" % (topic, result)
    return b"\2%b\2%b" % (string(topic, True), result)


def _result(version: int, result: PartitionResult) -> bytes:
    index, code, base, time_ms, start, record_errors, message, leader = result
    if version < 5:
        return _RESULT_V3.pack(index, code, base, time_ms)
    if version < 8:
        return _RESULT_V5.pack(index, code, base, time_ms, start)
    if record_errors or message is not None or leader != NO_LEADER:
        return _result_in_full(version, result)
    if version < _FLEXIBLE:
        return _RESULT_V8.pack(index, code, base, time_ms, start, 0, -1)
    return _RESULT_V9.pack(index, code, base, time_ms, start, 1, 0, 0)


def _result_in_full(version: int, result: PartitionResult) -> bytes:
    flexible = version >= _FLEXIBLE
    pieces = [_RESULT_V5.pack(*result[:5]), array_length(len(result.record_errors), flexible)]
    for batch_index, message in result.record_errors:
        pieces += (_INT32.pack(batch_index), string(message, flexible))
        if flexible:
            pieces.append(b"\0")
    pieces.append(string(result.error_message, flexible))
    if flexible:
        shown = version >= 10 and result.current_leader != NO_LEADER
        pieces.append(tagged([(0, leader_body(result.current_leader))] if shown else []))
    return b"".join(pieces)
