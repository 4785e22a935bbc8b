"""A follower's Fetch v15-18 as its leader mostly gets and answers it: fixed layouts.

Nothing new, or partitions of one topic: once or twice per replicated batch and follower. Both
functions give None for all else, which `fetch.py` reads and `fetch_response.py` writes; what they
do take has the same bytes there.
"""

import struct
from collections.abc import Sequence
from typing import Final

from chronik.model.limits import BRIEF_ANSWER_BYTES_MAX
from chronik.wire.fetch import NO_HIGH_WATERMARK, FetchPartition, FetchRequest
from chronik.wire.fetch_response import NO_TAGS, FetchResult
from chronik.wire.primitives import ZERO_UUID, Buffer, uvarint
from chronik.wire.replica_layouts import (
    ANSWER_AND_TOPIC,
    END,
    HEAD_AND_TOPIC,
    LENGTH_MAX,
    NO_TOPIC_THEN,
    ONE,
    PARTITION,
    TOPIC_THEN,
)

_NO_TOPIC: Final = struct.Struct(">iiibii6siqB")
_NO_TOPIC_BYTES: Final = _NO_TOPIC.size
_TOPIC_BYTES: Final = HEAD_AND_TOPIC.size
_PARTITION_BYTES: Final = PARTITION.size
_TOPIC_END_BYTES: Final = END.size
_NO_MORE: Final = (ZERO_UUID, NO_HIGH_WATERMARK)
"""What no follower says of a partition: its directory, and the watermark that it knows."""
_RESULT: Final = struct.Struct(">ihqqqBi")
_PLAIN: Final = (None, -1, *NO_TAGS)
"""What comes after the records of a result that tells neither a divergence nor another leader."""


def read_follower_request(frame: bytearray, position: int) -> FetchRequest | None:
    """The request whose body begins there and ends with the frame."""
    size = len(frame) - position
    if size > _NO_TOPIC_BYTES:
        return _read_topic(frame, position)
    if size < _NO_TOPIC_BYTES:
        return None
    wait_ms, least, most, isolation, session, epoch, then, replica, replica_epoch, tags = (
        _NO_TOPIC.unpack_from(frame, position)
    )
    if then != NO_TOPIC_THEN or tags:
        return None
    return tuple.__new__(
        FetchRequest,
        (replica, replica_epoch, wait_ms, least, most, isolation, session, epoch, [], [], "", None),
    )


def _read_topic(frame: bytearray, position: int) -> FetchRequest | None:
    wait_ms, least, most, isolation, session, epoch, topics, topic_id, length = (
        HEAD_AND_TOPIC.unpack_from(frame, position)
    )
    start = position + _TOPIC_BYTES
    stop = start + (length - 1) * _PARTITION_BYTES
    if topics != ONE or not 0 < length <= LENGTH_MAX or stop + _TOPIC_END_BYTES != len(frame):
        return None
    then, replica, replica_epoch, tags = END.unpack_from(frame, stop)
    if then != TOPIC_THEN or tags:
        return None
    partitions = []
    for index, leader_epoch, offset, last_epoch, log_start, size, tags in PARTITION.iter_unpack(
        frame[start:stop]
    ):
        if tags:
            return None
        wanted = (
            None,
            topic_id,
            index,
            leader_epoch,
            offset,
            last_epoch,
            log_start,
            size,
            *_NO_MORE,
        )
        partitions.append(tuple.__new__(FetchPartition, wanted))
    head = (replica, replica_epoch, wait_ms, least, most, isolation, session, epoch)
    return tuple.__new__(FetchRequest, (*head, partitions, [], "", None))


def plain_result(
    index: int, watermark: int, log_start: int, records: Sequence[Buffer] = ()
) -> FetchResult:
    """What there is to say of a partition where nothing is wrong."""
    return tuple.__new__(FetchResult, (index, 0, watermark, watermark, log_start, records, *_PLAIN))


def write_brief_answer(
    session_id: int, topic_id: bytes, results: Sequence[FetchResult]
) -> bytes | None:
    """An answer in one piece, if it is short: to copy it costs less than to send several."""
    length = len(results) + 1
    if length > LENGTH_MAX:
        return None
    out = ANSWER_AND_TOPIC.pack(0, 0, session_id, ONE, topic_id, length)
    left = BRIEF_ANSWER_BYTES_MAX
    for result in results:
        records = result[5]
        if records is None or result[6:] != _PLAIN:
            return None
        if not records:
            out += _RESULT.pack(*result[:5], 0, -1) + b"\1\0"
            continue
        size = sum(map(len, records))
        left -= size
        if left < 0:
            return None
        head = _RESULT.pack(*result[:5], 0, -1) + uvarint(size + 1)
        out = b"".join((out, head, *records, b"\0"))
    return out + b"\0\0"
