"""Fetch requests v4-18 by hand, as consumers and followers send them many times a second.

v12+ are flexible, v13+ name topics by id (KIP-516), v15+ put the follower's id into a tagged field
(KIP-903). The answers are written in `fetch_response.py`.
"""

import struct
from typing import Final, NamedTuple

from chronik.wire.fetch_layouts import (
    CONSUMER_END,
    HEAD_AND_TOPIC,
    LENGTH_MAX,
    ONE,
    PARTITION,
)
from chronik.wire.primitives import (
    ZERO_UUID,
    Buffer,
    WireError,
    read_length,
    read_string,
    read_uvarint,
    short,
    skip_tags,
)

FIRST_VERSION: Final = 4
LAST_VERSION: Final = 18
FLEXIBLE: Final = 12
TOPIC_ID: Final = 13
NO_HIGH_WATERMARK: Final = 2**63 - 1

_HEAD: Final = struct.Struct(">iiib")
_INT32: Final = struct.Struct(">i")
_SESSION: Final = struct.Struct(">ii")
_REPLICA_STATE: Final = struct.Struct(">iq")
_INT64: Final = struct.Struct(">q")
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_TOPIC_BYTES: Final = HEAD_AND_TOPIC.size


class FetchPartition(NamedTuple):
    """From where and how much one partition is to be read."""

    topic: str | None
    topic_id: bytes | None
    index: int  # type: ignore[assignment]  # hides tuple.index
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = NO_HIGH_WATERMARK
    """What the follower knows (KIP-1166); the greatest number where it does not say."""


class FetchRequest(NamedTuple):
    """A whole request; partitions in the order of the bytes."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: list[tuple[str | bytes, int]]
    """Topic name, or id from v13 on, and partition."""
    rack_id: str
    cluster_id: str | None


class _Tail(NamedTuple):
    cluster_id: str | None = None
    replica_id: int = -1
    replica_epoch: int = -1


_NO_TAIL: Final = _Tail()
_USUAL_END: Final = b"\1\1\0"
"""Nothing forgotten, no rack, no tagged fields."""


def parse_fetch(version: int, frame: Buffer, position: int) -> FetchRequest:
    """The request whose body starts at `position`."""
    assert FIRST_VERSION <= version <= LAST_VERSION, version
    try:
        one = _parse_one(frame, position) if version >= 15 else None
        return one or _parse(version, frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"Fetch v{version}: {error} in {len(frame)} bytes") from error


def _parse_one(frame: Buffer, position: int) -> FetchRequest | None:
    """What consumers send most, partitions of one topic, in one go; None: `_parse` reads it."""
    start = position + _TOPIC_BYTES
    if len(frame) < start:
        return None
    wait_ms, least, most, isolation, session, epoch, topics, topic_id, length = (
        HEAD_AND_TOPIC.unpack_from(frame, position)
    )
    stop = start + (length - 1) * PARTITION.size
    if topics != ONE or not 0 < length <= LENGTH_MAX or stop + len(CONSUMER_END) != len(frame):
        return None
    if bytes(frame[stop:]) != CONSUMER_END:
        return None
    partitions = read_partitions(frame[start:stop], topic_id)
    if partitions is None:
        return None
    head = (-1, -1, wait_ms, least, most, isolation, session, epoch)
    return tuple.__new__(FetchRequest, (*head, partitions, [], "", None))


def read_partitions(rows: Buffer, topic_id: bytes) -> list[FetchPartition] | None:
    """The partitions of a topic, without their number; None where one of them has tags."""
    partitions, unknown = [], NO_HIGH_WATERMARK
    for index, epoch, offset, last, start, most, tags in PARTITION.iter_unpack(rows):
        if tags:
            return None
        where = (None, topic_id, index, epoch, offset, last, start, most, ZERO_UUID, unknown)
        partitions.append(tuple.__new__(FetchPartition, where))
    return partitions


def _parse(version: int, frame: Buffer, position: int) -> FetchRequest:
    replica_id = -1
    if version < 15:
        (replica_id,) = _INT32.unpack_from(frame, position)
        position += _INT32.size
    max_wait_ms, min_bytes, max_bytes, isolation_level = _HEAD.unpack_from(frame, position)
    position += _HEAD.size
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(frame, position)
        position += _SESSION.size
    partitions, position = _read_topics(version, frame, position)
    forgotten: list[tuple[str | bytes, int]] = []
    rack_id: str | None = ""
    tail = _NO_TAIL
    if version < FLEXIBLE or bytes(frame[position : position + 3]) != _USUAL_END:
        if version >= 7:
            forgotten, position = _read_forgotten(version, frame, position)
        if version >= 11:
            rack_id, position = read_string(frame, position, version >= FLEXIBLE)
        if version >= FLEXIBLE:
            tail = _read_tail(version, frame, position)
    return FetchRequest(
        replica_id if version < 15 else tail.replica_id,
        tail.replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack_id or "",
        tail.cluster_id,
    )


def _read_topic(version: int, frame: Buffer, position: int) -> tuple[str | bytes, int]:
    if version >= TOPIC_ID:
        topic_id = bytes(frame[position : position + 16])
        if len(topic_id) < 16:
            raise short("topic id", 16, position, len(frame))
        return topic_id, position + 16
    topic, position = read_string(frame, position, version >= FLEXIBLE)
    if topic is None:
        raise WireError(f"topic name: null before byte {position}")
    return topic, position


def _read_topics(version: int, frame: Buffer, position: int) -> tuple[list[FetchPartition], int]:
    flexible = version >= FLEXIBLE
    read = _read_partitions if flexible else _read_partitions_legacy
    partitions: list[FetchPartition] = []
    count, position = read_length(frame, position, flexible)
    for _ in range(count):
        key, position = _read_topic(version, frame, position)
        topic, topic_id = (key, None) if isinstance(key, str) else (None, key)
        position = read(version, frame, position, (topic, topic_id), partitions)
        if flexible:
            position = skip_tags(frame, position)
    return partitions, position


def _read_partitions(
    version: int,
    frame: Buffer,
    position: int,
    topic: tuple[str | None, bytes | None],
    partitions: list[FetchPartition],
) -> int:
    count, position = read_length(frame, position, True, PARTITION.size)
    for _ in range(count):
        *values, tags = PARTITION.unpack_from(frame, position)
        position += PARTITION.size
        partition = FetchPartition(*topic, *values)
        if tags:
            partition, position = _read_partition_tags(version, frame, position - 1, partition)
        partitions.append(partition)
    return position


def _read_partition_tags(
    version: int, frame: Buffer, position: int, partition: FetchPartition
) -> tuple[FetchPartition, int]:
    for tag, start, stop in tag_positions(frame, position):
        if tag == 0 and version >= 17 and stop - start >= 16:
            directory_id = bytes(frame[start : start + 16])
            partition = partition._replace(replica_directory_id=directory_id)
        elif tag == 1 and version >= 18:
            (high_watermark,) = _INT64.unpack_from(frame, start)
            partition = partition._replace(high_watermark=high_watermark)
    return partition, skip_tags(frame, position)


def _read_partitions_legacy(
    version: int,
    frame: Buffer,
    position: int,
    topic: tuple[str | None, bytes | None],
    partitions: list[FetchPartition],
) -> int:
    layout = _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    count, position = read_length(frame, position, False, layout.size)
    for _ in range(count):
        index, *epoch, offset, start, max_bytes = _legacy_values(version, layout, frame, position)
        position += layout.size
        leader_epoch = epoch[0] if epoch else -1
        partitions.append(FetchPartition(*topic, index, leader_epoch, offset, -1, start, max_bytes))
    return position


def _legacy_values(
    version: int, layout: struct.Struct, frame: Buffer, position: int
) -> tuple[int, ...]:
    values = layout.unpack_from(frame, position)
    if version >= 5:
        return values
    index, offset, max_bytes = values
    return index, offset, -1, max_bytes


def _read_forgotten(
    version: int, frame: Buffer, position: int
) -> tuple[list[tuple[str | bytes, int]], int]:
    flexible = version >= FLEXIBLE
    forgotten: list[tuple[str | bytes, int]] = []
    count, position = read_length(frame, position, flexible)
    for _ in range(count):
        topic, position = _read_topic(version, frame, position)
        length, position = read_length(frame, position, flexible, 4)
        indexes = struct.unpack_from(f">{length}i", frame, position)
        forgotten += [(topic, index) for index in indexes]
        position += 4 * length
        if flexible:
            position = skip_tags(frame, position)
    return forgotten, position


def _read_tail(version: int, frame: Buffer, position: int) -> _Tail:
    """The tagged fields of the whole request."""
    tail = _Tail()
    if not frame[position]:
        return tail
    for tag, start, _ in tag_positions(frame, position):
        if tag == 0:
            tail = tail._replace(cluster_id=read_string(frame, start, True)[0])
        elif tag == 1 and version >= 15:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, start)
            tail = tail._replace(replica_id=replica_id, replica_epoch=replica_epoch)
    return tail


def tag_positions(frame: Buffer, position: int) -> list[tuple[int, int, int]]:
    """Tag, start and stop of each tagged field of the section at `position`."""
    found = []
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if size > len(frame) - position:
            raise short("tagged field", size, position, len(frame))
        found.append((tag, position, position + size))
        position += size
    return found
