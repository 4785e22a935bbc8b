"""Fetch answers v4-18 as a list of buffers: the records go to the socket as they lie in the file.

Log start offset from v5, session from v7, preferred replica (KIP-392) from v11, divergence
(KIP-595) and leaders as tagged fields from v12, topic ids from v13, endpoints (KIP-951) from v16.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from chronik.wire.endpoints import NO_LEADER, Leader, NodeEndpoint, endpoints_body, leader_body
from chronik.wire.fetch import FIRST_VERSION, FLEXIBLE, LAST_VERSION, TOPIC_ID
from chronik.wire.fetch_layouts import ANSWER_AND_TOPIC, LENGTH_MAX, NO_RECORDS, ONE, RESULT
from chronik.wire.primitives import Buffer, array_length, string, tagged, uvarint

_INT32: Final = struct.Struct(">i")
_SESSION: Final = struct.Struct(">ihi")
_RESULT_V4: Final = struct.Struct(">ihqq")
_RESULT_V5: Final = struct.Struct(">ihqqq")
_COMMON_V11: Final = struct.Struct(">ihqqqiii")
_ABORTED: Final = struct.Struct(">qq")
_EPOCH_END: Final = struct.Struct(">iqB")
_SNAPSHOT: Final = struct.Struct(">qiB")


class EpochEnd(NamedTuple):
    """Where the follower's log parts from the leader's."""

    epoch: int = -1
    end_offset: int = -1


class SnapshotId(NamedTuple):
    """The snapshot to fetch in place of records that are gone."""

    end_offset: int = -1
    epoch: int = -1


NO_EPOCH_END: Final = EpochEnd()
NO_SNAPSHOT: Final = SnapshotId()


class FetchResult(NamedTuple):
    """What was read of one partition."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Buffer] | None = ()
    """Pieces of whole batches, sent one after the other."""
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    """Producer id and first offset of each; None for readers of uncommitted records."""
    preferred_read_replica: int = -1
    diverging_epoch: EpochEnd = NO_EPOCH_END
    current_leader: Leader = NO_LEADER
    snapshot_id: SnapshotId = NO_SNAPSHOT


NO_TAGS: Final = (NO_EPOCH_END, NO_LEADER, NO_SNAPSHOT)
PLAIN: Final = (None, -1, *NO_TAGS)
"""What comes after the records of nearly every result."""


def plain_result(
    index: int, high_watermark: int, log_start: int, records: Sequence[Buffer] = ()
) -> FetchResult:
    """The usual one: all went well, all that is committed is stable, nothing else is told."""
    fields = (index, 0, high_watermark, high_watermark, log_start, records, *PLAIN)
    return tuple.__new__(FetchResult, fields)


class FetchResponse(NamedTuple):
    """A whole answer; topics by id (16 bytes) from v13 on, by name before."""

    topics: Sequence[tuple[str | bytes, Sequence[FetchResult]]] = ()
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def write_fetch_response(version: int, response: FetchResponse) -> list[Buffer]:
    """The body of the answer; its size is the sum of the buffers' lengths."""
    assert FIRST_VERSION <= version <= LAST_VERSION, version
    topics, error_code, session_id, throttle_time_ms, endpoints = response
    if version >= TOPIC_ID and len(topics) == 1 and not (error_code or throttle_time_ms):
        ((topic_id, results),) = topics
        assert isinstance(topic_id, bytes)
        plain = write_plain_answer(session_id, topic_id, results) if not endpoints else None
        if plain is not None:
            return plain
    return write_any_answer(version, response)


def write_plain_answer(
    session_id: int, topic_id: bytes, results: Sequence[FetchResult]
) -> list[Buffer] | None:
    """What is answered most, v13-18, of one topic; None: `write_any_answer` writes it."""
    length = len(results) + 1
    if length > LENGTH_MAX:
        return None
    buffers: list[Buffer] = []
    head = ANSWER_AND_TOPIC.pack(0, 0, session_id, ONE, topic_id, length)
    for result in results:
        index, code, watermark, stable, log_start, records = result[:6]
        if records is None or result[6:] != PLAIN:
            return None
        if records:
            size = uvarint(sum(map(len, records)) + 1)
            head += RESULT.pack(index, code, watermark, stable, log_start, 0, -1) + size
            buffers.append(head)
            buffers += records
            head = b"\0"
        else:
            head += NO_RECORDS.pack(index, code, watermark, stable, log_start, 0, -1, 1, 0)
    buffers.append(head + b"\0\0")
    return buffers


def write_any_answer(version: int, response: FetchResponse) -> list[Buffer]:
    """As `write_fetch_response`, whatever is to be told."""
    flexible = version >= FLEXIBLE
    buffers: list[Buffer] = []
    head = _head(version, response) + array_length(len(response.topics), flexible)
    for topic, results in response.topics:
        head += string(topic, flexible) if isinstance(topic, str) else topic
        head += array_length(len(results), flexible)
        for result in results:
            head += _result(version, result)
            if result.records:
                buffers.append(head)
                buffers += result.records
                head = b""
            if flexible:
                head += _result_tags(result)
        if flexible:
            head += b"\0"
    if flexible:
        shown = response.node_endpoints and version >= 16
        head += tagged([(0, endpoints_body(response.node_endpoints))]) if shown else b"\0"
    buffers.append(head)
    return buffers


def _head(version: int, response: FetchResponse) -> bytes:
    if version < 7:
        return _INT32.pack(response.throttle_time_ms)
    return _SESSION.pack(response.throttle_time_ms, response.error_code, response.session_id)


def _result(version: int, result: FetchResult) -> bytes:
    """Everything up to the records, whose length comes last."""
    flexible = version >= FLEXIBLE
    if version >= 11 and result.aborted_transactions is None and result.records is not None:
        return _common_result(flexible, result, sum(map(len, result.records)))
    fixed = _RESULT_V5.pack(*result[:5]) if version >= 5 else _RESULT_V4.pack(*result[:4])
    aborted = _aborted(result.aborted_transactions, flexible)
    replica = _INT32.pack(result.preferred_read_replica) if version >= 11 else b""
    if result.records is None:
        size = b"\0" if flexible else _INT32.pack(-1)
    else:
        size = array_length(sum(map(len, result.records)), flexible)
    return fixed + aborted + replica + size


def _common_result(flexible: bool, result: FetchResult, size: int) -> bytes:
    replica = result.preferred_read_replica
    if flexible:
        return RESULT.pack(*result[:5], 0, replica) + uvarint(size + 1)
    return _COMMON_V11.pack(*result[:5], -1, replica, size)


def _aborted(aborted: Sequence[tuple[int, int]] | None, flexible: bool) -> bytes:
    if aborted is None:
        return b"\0" if flexible else _INT32.pack(-1)
    tags = b"\0" if flexible else b""
    body = b"".join([_ABORTED.pack(*transaction) + tags for transaction in aborted])
    return array_length(len(aborted), flexible) + body


def _result_tags(result: FetchResult) -> bytes:
    if result[8:] == NO_TAGS:
        return b"\0"
    fields = []
    if result.diverging_epoch != NO_EPOCH_END:
        fields.append((0, _EPOCH_END.pack(*result.diverging_epoch, 0)))
    if result.current_leader != NO_LEADER:
        fields.append((1, leader_body(result.current_leader)))
    if result.snapshot_id != NO_SNAPSHOT:
        fields.append((2, _SNAPSHOT.pack(*result.snapshot_id, 0)))
    return tagged(fields)
