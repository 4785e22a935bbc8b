"""What `chronik topic describe` knows about a topic, gathered with few requests, and its print."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import click

from chronik.cli._client import ANSWER_SECONDS_MAX, Cluster, results
from chronik.cli._configs import ConfigView, describe_configs
from chronik.cli._log_dirs import Sizes, partition_sizes
from chronik.cli._offsets import Partition, Range, ranges
from chronik.cli._output import count_text, print_table, size_text

_URL_SAFE = str.maketrans("+/", "-_")
"""Kafka's tools print topic ids in this form of base64."""
NUMBERS = ("partition", "leader", "start", "end", "records", "size")


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition; what could not be learned is None."""

    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None

    @property
    def healthy(self) -> bool:
        """A leader, and every replica in sync."""
        return self.leader is not None and set(self.isr) == set(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic."""

    name: str
    topic_id: str
    internal: bool
    partitions: list[PartitionView]
    configs: list[ConfigView]
    """Those that differ from the default."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        configs = {config.name: config.value for config in self.configs}
        return {**asdict(self), "configs": configs}


def describe_topics(cluster: Cluster, names: Iterable[str]) -> list[TopicView]:
    """The topics in the order of the names; an unknown one is an error."""
    described = _describe(cluster, list(dict.fromkeys(names)))
    partitions = [
        (topic.name, partition.id)
        for topic in described
        for partition in topic.partitions
        if _node_id(partition.leader) is not None
    ]
    held = ranges(cluster.admin, partitions)
    brokers = [(broker.host, broker.port) for broker in cluster.metadata().brokers.values()]
    sizes = partition_sizes(brokers) if described else {}
    configs = describe_configs(cluster, [("topic", topic.name) for topic in described])
    return [
        TopicView(
            topic.name,
            str(topic.topic_id).translate(_URL_SAFE),
            bool(topic.is_internal),
            [_partition(topic.name, one, held, sizes) for one in topic.partitions],
            [config for config in configs["topic", topic.name] if config.changed],
        )
        for topic in described
    ]


def _describe(cluster: Cluster, names: list[str]) -> list[Any]:
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    if not names:
        return []
    answers = results(
        cluster.admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_SECONDS_MAX)
    )
    for name, answer in answers.items():
        if isinstance(answer, KafkaError):
            if answer.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise cluster.unknown_topic(name)
            raise KafkaException(answer)
    return [answers[name] for name in names]


def _partition(topic: str, found: Any, held: dict[Partition, Range], sizes: Sizes) -> PartitionView:
    key = (topic, found.id)
    has = held.get(key)
    return PartitionView(
        partition=found.id,
        leader=_node_id(found.leader),
        replicas=[node.id for node in found.replicas],
        isr=[node.id for node in found.isr],
        start_offset=has.start if has else None,
        end_offset=has.end if has else None,
        size_bytes=sizes.get(key),
    )


def _node_id(node: Any) -> int | None:
    return None if node is None or node.id < 0 else int(node.id)


def show_topic(topic: TopicView) -> None:
    """A headline, the changed configs, a table of the partitions."""
    sizes = [one.size_bytes for one in topic.partitions]
    parts = [
        count_text(len(topic.partitions), "partition"),
        f"replication {max((len(one.replicas) for one in topic.partitions), default=0)}",
    ]
    known = [size for size in sizes if size is not None]
    if known:
        parts.append(size_text(sum(known)))
    click.echo(f"{click.style(topic.name, bold=True)}: {', '.join(parts)}")
    for config in topic.configs:
        click.echo(f"  {config.name} = {config.value}  ({config.source})")
    print_table(
        ("partition", "leader", "replicas", "isr", "start", "end", "records", "size"),
        [_row(one) for one in topic.partitions],
        numbers=NUMBERS,
        red=lambda index: not topic.partitions[index].healthy,
    )


def _row(one: PartitionView) -> tuple[object, ...]:
    records = None
    if one.start_offset is not None and one.end_offset is not None:
        records = one.end_offset - one.start_offset
    return (
        one.partition,
        "none" if one.leader is None else one.leader,
        ",".join(map(str, one.replicas)),
        ",".join(map(str, one.isr)) or "none",
        one.start_offset,
        one.end_offset,
        records,
        size_text(one.size_bytes),
    )
