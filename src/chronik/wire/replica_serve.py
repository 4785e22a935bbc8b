"""A follower's Fetch v15-18 as its leader mostly gets and answers it: fixed layouts.

Nothing new, or partitions of one topic: once or twice per replicated batch and follower. Both
functions give None for all else, which `fetch.py` reads and `fetch_response.py` writes; what they
do take has the same bytes there.
"""

import struct
from collections.abc import Sequence
from typing import Final

from chronik.model.limits import BRIEF_ANSWER_BYTES_MAX
from chronik.wire.fetch import FetchRequest, read_partitions
from chronik.wire.fetch_layouts import (
    END,
    HEAD_AND_TOPIC,
    LENGTH_MAX,
    NO_TOPIC_THEN,
    ONE,
    PARTITION,
    TOPIC_THEN,
)
from chronik.wire.fetch_response import FetchResult, write_plain_answer

_NO_TOPIC: Final = struct.Struct(">iiibii6siqB")
_NO_TOPIC_BYTES: Final = _NO_TOPIC.size
_TOPIC_BYTES: Final = HEAD_AND_TOPIC.size
_PARTITION_BYTES: Final = PARTITION.size
_TOPIC_END_BYTES: Final = END.size


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
    partitions = read_partitions(frame[start:stop], topic_id)
    if partitions is None:
        return None
    head = (replica, replica_epoch, wait_ms, least, most, isolation, session, epoch)
    return tuple.__new__(FetchRequest, (*head, partitions, [], "", None))


def write_brief_answer(
    session_id: int, topic_id: bytes, results: Sequence[FetchResult]
) -> bytes | None:
    """An answer in one piece, if it is short: to copy it costs less than to send several."""
    left = BRIEF_ANSWER_BYTES_MAX
    for result in results:
        if result.records:
            left -= sum(map(len, result.records))
    plain = write_plain_answer(session_id, topic_id, results) if left >= 0 else None
    return b"".join(plain) if plain is not None else None
