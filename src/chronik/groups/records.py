"""The records of `__consumer_offsets`, byte for byte Kafka's.

| key version | key                          | value                                              |
|-------------|------------------------------|----------------------------------------------------|
| 0, 1        | group, topic, partition      | OffsetCommitValue v0-v4: offset, epoch, metadata.. |
| 2           | group                        | GroupMetadataValue v0-v4: generation, members..    |

A null value is a tombstone. Keys of other versions belong to protocols not served here (KIP-848 and
share groups) and are skipped. Offsets are written as v4 (v1 where a client stated a retention) and
groups as v3, as Kafka 4 does; every version is read.
"""

import struct
from dataclasses import dataclass, field

from chronik.groups.fields import FieldReader, FieldWriter, Malformed, unsigned_varint

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
VALUE_VERSION_MAX = 4
FIRST_FLEXIBLE_VERSION = 4
NO_TIMESTAMP = -1
_TOPIC_ID_TAG = 0
_ZERO_ID = bytes(16)
_TOPIC_ID_HEAD = bytes((1, _TOPIC_ID_TAG, len(_ZERO_ID)))
_KEY_HEAD = struct.Struct(">hh")
_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_VALUE_HEAD_V4 = struct.Struct(">hqi")
_TIMESTAMP = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class OffsetCommitValue:
    """A committed offset of one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    """Only of clients that stated a retention (OffsetCommit v2-v4)."""
    topic_id: bytes = _ZERO_ID


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A member of a stored generation."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    assignment: bytes
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """One generation of a group with its assignment; no members means Empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int = NO_TIMESTAMP
    members: tuple[MemberMetadata, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class OffsetCommitRecord:
    """A committed offset, or its tombstone."""

    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue | None


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    """A generation of a group, or the group's tombstone."""

    group_id: str
    value: GroupMetadataValue | None


Record = OffsetCommitRecord | GroupMetadataRecord


def encode(record: Record, value_version: int | None = None) -> tuple[bytes, bytes | None]:
    """Key and value as they stand in the log."""
    if isinstance(record, OffsetCommitRecord):
        key = _offset_key(record)
        offset = record.value
        return key, None if offset is None else _encode_offset(offset, value_version)
    key = _group_key(record)
    group = record.value
    return key, None if group is None else _encode_group(group, value_version)


def decode(key: bytes, value: bytes | None) -> Record | None:
    """The record of a key and a value, or None for a kind that is not served here."""
    reader = FieldReader(key)
    version = reader.int16()
    if version in (0, OFFSET_KEY_VERSION):
        group_id, topic, partition = reader.string(), reader.string(), reader.int32()
        offset = None if value is None else _decode_offset(value)
        return OffsetCommitRecord(group_id, topic, partition, offset)
    if version == GROUP_KEY_VERSION:
        return GroupMetadataRecord(reader.string(), None if value is None else _decode_group(value))
    return None


def _offset_key(record: OffsetCommitRecord) -> bytes:
    group, topic = record.group_id.encode(), record.topic.encode()
    return b"".join(
        (
            _KEY_HEAD.pack(OFFSET_KEY_VERSION, len(group)),
            group,
            _LENGTH.pack(len(topic)),
            topic,
            _PARTITION.pack(record.partition),
        )
    )


def _group_key(record: GroupMetadataRecord) -> bytes:
    key = FieldWriter(flexible=False)
    key.int16(GROUP_KEY_VERSION)
    key.string(record.group_id)
    return key.bytes()


def _encode_offset(value: OffsetCommitValue, version: int | None) -> bytes:
    if version is None:
        if value.expire_timestamp_ms == NO_TIMESTAMP:
            return _encode_offset_v4(value)
        version = 1
    out = _value_writer(version)
    out.int64(value.offset)
    if version >= 3:
        out.int32(value.leader_epoch)
    out.string(value.metadata)
    out.int64(value.commit_timestamp_ms)
    if version == 1:
        out.int64(value.expire_timestamp_ms)
    out.tags(() if value.topic_id == _ZERO_ID else ((_TOPIC_ID_TAG, value.topic_id),))
    return out.bytes()


def _encode_offset_v4(value: OffsetCommitValue) -> bytes:
    """What almost every commit is written as, in one go: it is most of what a commit costs."""
    metadata = value.metadata.encode()
    tags = b"\0" if value.topic_id == _ZERO_ID else _TOPIC_ID_HEAD + value.topic_id
    return b"".join(
        (
            _VALUE_HEAD_V4.pack(4, value.offset, value.leader_epoch),
            unsigned_varint(len(metadata) + 1),
            metadata,
            _TIMESTAMP.pack(value.commit_timestamp_ms),
            tags,
        )
    )


def _decode_offset(data: bytes) -> OffsetCommitValue:
    version, reader = _value_reader(data)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else NO_TIMESTAMP
    topic_id = reader.tags().get(_TOPIC_ID_TAG, _ZERO_ID)
    return OffsetCommitValue(
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id
    )


def _encode_group(value: GroupMetadataValue, version: int | None) -> bytes:
    version = 3 if version is None else version
    out = _value_writer(version)
    out.string(value.protocol_type)
    out.int32(value.generation)
    out.string(value.protocol)
    out.string(value.leader)
    if version >= 2:
        out.int64(value.current_state_timestamp_ms)
    out.array(len(value.members))
    for member in value.members:
        _encode_member(out, member, version)
    out.tags()
    return out.bytes()


def _encode_member(out: FieldWriter, member: MemberMetadata, version: int) -> None:
    out.string(member.member_id)
    if version >= 3:
        out.string(member.group_instance_id)
    out.string(member.client_id)
    out.string(member.client_host)
    if version >= 1:
        out.int32(member.rebalance_timeout_ms)
    out.int32(member.session_timeout_ms)
    out.blob(member.subscription)
    out.blob(member.assignment)
    out.tags()


def _decode_group(data: bytes) -> GroupMetadataValue:
    version, reader = _value_reader(data)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_decode_member(reader, version) for _ in range(reader.array()))
    reader.tags()
    return GroupMetadataValue(protocol_type, generation, protocol, leader, timestamp_ms, members)


def _decode_member(reader: FieldReader, version: int) -> MemberMetadata:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    # v0 knew one timeout for both purposes.
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    if rebalance_timeout_ms is None:
        rebalance_timeout_ms = session_timeout_ms
    subscription, assignment = reader.blob(), reader.blob()
    reader.tags()
    return MemberMetadata(
        member_id,
        client_id,
        client_host,
        session_timeout_ms,
        rebalance_timeout_ms,
        subscription,
        assignment,
        group_instance_id,
    )


def _value_writer(version: int) -> FieldWriter:
    out = FieldWriter(flexible=version >= FIRST_FLEXIBLE_VERSION)
    out.int16(version)
    return out


def _value_reader(data: bytes) -> tuple[int, FieldReader]:
    version = FieldReader(data).int16()
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise Malformed(f"value version {version} is not known")
    return version, FieldReader(data, 2, flexible=version >= FIRST_FLEXIBLE_VERSION)
