"""What a cluster says about itself, asked with Kafka's admin APIs: works with any cluster."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    OffsetSpec,
)

from chronik.pipeline.client import ClusterError
from chronik.pipeline.client import TopicPartition as Partition

ANSWER_SECONDS_MAX = 15.0


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Where a partition's replicas are."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OffsetFacts:
    """What a partition holds."""

    earliest: int
    last_stable: int
    """Where a reader of committed records ends."""
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group."""

    member_id: str
    client_id: str
    host: str
    assignment: tuple[Partition, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """One consumer group."""

    name: str
    state: str
    kind: str
    assignor: str
    coordinator: int | None
    members: tuple[Member, ...] = ()
    committed: dict[Partition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """What was asked for."""

    controller: int | None = None
    brokers: list[Broker] = field(default_factory=list)
    topics: dict[str, bool] = field(default_factory=dict)
    """Name to whether it is internal."""
    partitions: list[PartitionFacts] = field(default_factory=list)
    offsets: dict[Partition, OffsetFacts] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)


def gather(bootstrap: str, *, offsets: bool = True, groups: bool = True) -> Facts:
    """Asks the cluster; partitions without a leader have no offsets."""
    admin = _admin(bootstrap)
    answer = _future(admin.describe_cluster(request_timeout=ANSWER_SECONDS_MAX))
    metadata = admin.list_topics(timeout=ANSWER_SECONDS_MAX)
    partitions = _partitions(metadata)
    led = [(one.topic, one.partition) for one in partitions if one.leader is not None]
    return Facts(
        None if answer.controller is None else answer.controller.id,
        sorted((Broker(n.id, n.host, n.port, n.rack) for n in answer.nodes), key=lambda b: b.id),
        {name: name.startswith("__") for name in sorted(metadata.topics)},
        partitions,
        _offsets(admin, led) if offsets else {},
        _groups(admin) if groups else [],
    )


def _admin(bootstrap: str) -> AdminClient:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "chronik-sql",
        "log_level": 0,
        "error_cb": lambda _: None,
        "reconnect.backoff.ms": 10,
    }
    return AdminClient(settings)


def _future(future: Any) -> Any:
    try:
        return future.result(ANSWER_SECONDS_MAX + 5)
    except Exception as error:
        raise ClusterError(f"the cluster did not answer: {error}") from error


def _partitions(metadata: Any) -> list[PartitionFacts]:
    return [
        PartitionFacts(
            name, number, None if p.leader < 0 else p.leader, tuple(p.replicas), tuple(p.isrs)
        )
        for name, topic in sorted(metadata.topics.items())
        for number, p in sorted(topic.partitions.items())
    ]


def _offsets(admin: AdminClient, wanted: Iterable[Partition]) -> dict[Partition, OffsetFacts]:
    parts = list(wanted)
    spec: Any = OffsetSpec
    committed = IsolationLevel.READ_COMMITTED
    earliest = _listed(admin, parts, spec.earliest())
    stable = _listed(admin, parts, spec.latest(), isolation_level=committed)
    ends = _listed(admin, parts, spec.latest())
    return {
        one: OffsetFacts(earliest[one], stable[one], ends[one])
        for one in parts
        if one in earliest and one in stable and one in ends
    }


def _listed(
    admin: AdminClient, parts: Iterable[Partition], spec: Any, **more: Any
) -> dict[Partition, int]:
    wanted = {TopicPartition(*one): spec for one in parts}
    if not wanted:
        return {}
    answers = admin.list_offsets(wanted, request_timeout=ANSWER_SECONDS_MAX, **more)
    return {(one.topic, one.partition): _future(f).offset for one, f in answers.items()}


def _groups(admin: AdminClient) -> list[Group]:
    listed = _future(admin.list_consumer_groups(request_timeout=ANSWER_SECONDS_MAX))
    types = {one.group_id: _text(one.type).lower() for one in listed.valid}
    names = sorted(types)
    if not names:
        return []
    described = admin.describe_consumer_groups(names, request_timeout=ANSWER_SECONDS_MAX)
    return [_group(admin, name, types[name], _future(described[name])) for name in names]


def _group(admin: AdminClient, name: str, type_: str, found: Any) -> Group:
    asked = [ConsumerGroupTopicPartitions(name)]
    answers = admin.list_consumer_group_offsets(asked, request_timeout=ANSWER_SECONDS_MAX)
    parts = _future(answers[name]).topic_partitions
    return Group(
        name,
        _text(found.state),
        type_,
        found.partition_assignor,
        None if found.coordinator is None else found.coordinator.id,
        tuple(_member(one) for one in found.members),
        {(one.topic, one.partition): one.offset for one in parts if one.offset >= 0},
    )


def _member(found: Any) -> Member:
    parts = found.assignment.topic_partitions if found.assignment else []
    return Member(
        found.member_id,
        found.client_id,
        found.host.removeprefix("/"),
        tuple(sorted((one.topic, one.partition) for one in parts)),
    )


def _text(word: Any) -> str:
    """librdkafka's PREPARING_REBALANCING in Kafka's own spelling."""
    parts = (part.capitalize() for part in word.name.split("_"))
    return "".join(parts).replace("Rebalancing", "Rebalance")
