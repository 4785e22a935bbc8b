"""The records of the metadata log, and their bytes.

An encoded record is one byte of type, one byte of version, and a JSON array of the fields in
order: short, and readable in a dump of the log. An unknown type or version is an error, because
a node that skipped it would have another image than the others.
"""

import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from chronik.cluster.image import Endpoint, PartitionState, Resource, ResourceType


class RecordError(ValueError):
    """Bytes that are not a record this node can apply."""


@dataclass(frozen=True, slots=True)
class ClusterCreated:
    """The first record of a cluster."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A node came (or came back): it is fenced until it has caught up, except in snapshots."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directory_id: bytes = b""


@dataclass(frozen=True, slots=True)
class BrokerFenced:
    """A node's session ended: it may neither lead nor be in sync."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BrokerUnfenced:
    """A node has caught up with the metadata and may work."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BrokerShuttingDown:
    """A node asked to hand over its partitions."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BrokerUnregistered:
    """A node left the cluster for good."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class BrokerEpochsUsed:
    """Snapshots only: epochs below this were given to brokers, some of them gone."""

    next_broker_epoch: int


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic; its partitions follow in the same batch, in order."""

    topic_id: bytes
    name: str


@dataclass(frozen=True, slots=True)
class PartitionCreated:
    """The next partition of a topic."""

    topic_id: bytes
    partition: int
    state: PartitionState


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """The whole new state, so that applying needs no arithmetic."""

    topic_id: bytes
    partition: int
    state: PartitionState


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic, its partitions and its configuration are gone."""

    topic_id: bytes


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """One key of one resource; None removes it."""

    resource: Resource
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    """A broker got the producer ids below `next_producer_id` that were still free."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """The level of a feature the whole cluster uses; 0 removes it."""

    name: str
    level: int


Record = (
    ClusterCreated
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | BrokerShuttingDown
    | BrokerUnregistered
    | BrokerEpochsUsed
    | TopicCreated
    | PartitionCreated
    | PartitionChanged
    | TopicDeleted
    | ConfigChanged
    | ProducerIdsAllocated
    | FeatureLevel
)

_Fields = list[Any]
_Codec = tuple[int, type[Any], Callable[[Any], _Fields], Callable[[_Fields], Record]]


def _state_out(state: PartitionState) -> _Fields:
    return [
        state.replicas,
        state.isr,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        state.adding,
        state.removing,
    ]


def _state_in(fields: _Fields) -> PartitionState:
    replicas, isr, leader, leader_epoch, partition_epoch, adding, removing = fields
    return PartitionState(
        tuple(replicas),
        tuple(isr),
        leader,
        leader_epoch,
        partition_epoch,
        tuple(adding),
        tuple(removing),
    )


def _registered_out(one: BrokerRegistered) -> _Fields:
    ends = [[end.listener, end.host, end.port] for end in one.endpoints]
    flags = int(one.fenced) | int(one.in_controlled_shutdown) << 1
    fields: _Fields = [one.broker_id, one.epoch, one.incarnation_id.hex(), ends, one.rack, flags]
    return [*fields, one.directory_id.hex()]


def _registered_in(fields: _Fields) -> BrokerRegistered:
    broker_id, epoch, incarnation, ends, rack, flags, *later = fields
    endpoints = tuple(Endpoint(*end) for end in ends)
    incarnation_id = bytes.fromhex(incarnation)
    directory_id = bytes.fromhex(later[0]) if later else b""  # a later field
    states = bool(flags & 1), bool(flags & 2)
    return BrokerRegistered(
        broker_id, epoch, incarnation_id, endpoints, rack, *states, directory_id
    )


def _partition_out(one: PartitionCreated | PartitionChanged) -> _Fields:
    return [one.topic_id.hex(), one.partition, *_state_out(one.state)]


def _broker_out(
    one: BrokerFenced | BrokerUnfenced | BrokerShuttingDown | BrokerUnregistered,
) -> _Fields:
    return [one.broker_id, one.epoch]


def _config_out(one: ConfigChanged) -> _Fields:
    return [int(one.resource.type), one.resource.name, one.key, one.value]


def _config_in(fields: _Fields) -> ConfigChanged:
    type_, name, key, value = fields
    return ConfigChanged(Resource(ResourceType(type_), name), key, value)


# The numbers are on disk: a number is never used again for something else.
_CODECS: Final[tuple[_Codec, ...]] = (
    (1, ClusterCreated, lambda r: [r.cluster_id], lambda f: ClusterCreated(*f)),
    (2, BrokerRegistered, _registered_out, _registered_in),
    (3, BrokerFenced, _broker_out, lambda f: BrokerFenced(*f)),
    (4, BrokerUnfenced, _broker_out, lambda f: BrokerUnfenced(*f)),
    (5, BrokerShuttingDown, _broker_out, lambda f: BrokerShuttingDown(*f)),
    (6, BrokerUnregistered, _broker_out, lambda f: BrokerUnregistered(*f)),
    (7, BrokerEpochsUsed, lambda r: [r.next_broker_epoch], lambda f: BrokerEpochsUsed(*f)),
    (
        8,
        TopicCreated,
        lambda r: [r.topic_id.hex(), r.name],
        lambda f: TopicCreated(bytes.fromhex(f[0]), f[1]),
    ),
    (
        9,
        PartitionCreated,
        _partition_out,
        lambda f: PartitionCreated(bytes.fromhex(f[0]), f[1], _state_in(f[2:])),
    ),
    (
        10,
        PartitionChanged,
        _partition_out,
        lambda f: PartitionChanged(bytes.fromhex(f[0]), f[1], _state_in(f[2:])),
    ),
    (11, TopicDeleted, lambda r: [r.topic_id.hex()], lambda f: TopicDeleted(bytes.fromhex(f[0]))),
    (12, ConfigChanged, _config_out, _config_in),
    (
        13,
        ProducerIdsAllocated,
        lambda r: [r.broker_id, r.broker_epoch, r.next_producer_id],
        lambda f: ProducerIdsAllocated(*f),
    ),
    (14, FeatureLevel, lambda r: [r.name, r.level], lambda f: FeatureLevel(*f)),
)

_VERSION: Final = 0
_LENGTH: Final = struct.Struct(">I")
_WRITERS: Final = {cls: (bytes((number, _VERSION)), out) for number, cls, out, _ in _CODECS}
_READERS: Final = {number: (cls.__name__, into) for number, cls, _, into in _CODECS}
_dump: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode(record: Record) -> bytes:
    """A record's bytes."""
    head, out = _WRITERS[type(record)]
    return head + _dump(out(record)).encode("utf-8", "surrogatepass")


def decode(data: bytes) -> Record:
    """The record of some bytes, or a RecordError that says what is not understood."""
    if len(data) < 2:
        raise RecordError(f"a metadata record has at least 2 bytes, not {len(data)}")
    reader = _READERS.get(data[0])
    if reader is None:
        raise RecordError(
            f"metadata record type {data[0]} is unknown: it was written by a newer version; "
            "upgrade this node"
        )
    name, into = reader
    if data[1] != _VERSION:
        raise RecordError(
            f"{name} record has version {data[1]}, this node reads {_VERSION}: upgrade this node"
        )
    try:
        return into(json.loads(data[2:].decode("utf-8", "surrogatepass")))
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise RecordError(f"{name} record is damaged: {error}") from error


def encode_all(records: Iterable[Record]) -> bytes:
    """Several records as one value (a Raft entry or snapshot): each after its length."""
    parts = []
    for record in records:
        data = encode(record)
        parts += [_LENGTH.pack(len(data)), data]
    return b"".join(parts)


def decode_all(data: bytes) -> list[Record]:
    """What `encode_all` wrote."""
    records, at = [], 0
    while at < len(data):
        start = at + _LENGTH.size
        end = start + _LENGTH.unpack_from(data, at)[0] if start <= len(data) else len(data) + 1
        if end > len(data):
            raise RecordError(f"metadata records end in the middle of one, at byte {at}")
        records.append(decode(data[start:end]))
        at = end
    return records
