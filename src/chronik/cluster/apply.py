"""Records onto an image: the only way the cluster's metadata changes.

A batch is applied in one go: a mapping is copied when the batch first changes it, and a topic's
partitions are frozen once at the end, so ten thousand records cost one copy and not ten thousand.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from chronik.cluster.image import (
    EMPTY,
    Broker,
    ClusterImage,
    PartitionState,
    Resource,
    ResourceType,
    Topic,
)
from chronik.cluster.records import (
    BrokerEpochsUsed,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    ClusterCreated,
    ConfigChanged,
    FeatureLevel,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsAllocated,
    Record,
    TopicCreated,
    TopicDeleted,
)


def apply(
    image: ClusterImage, records: Iterable[Record], version: int | None = None
) -> ClusterImage:
    """The image after some records. `version` is the Raft index of the last one."""
    builder = _Builder(image)
    count = 0
    for record in records:
        _APPLY[type(record)](builder, record)
        count += 1
    return builder.build(image.version + count if version is None else version)


def snapshot(image: ClusterImage) -> list[Record]:
    """The records that make an equal image from the empty one."""
    records: list[Record] = [ClusterCreated(image.cluster_id)]
    records += [FeatureLevel(name, level) for name, level in image.features.items()]
    records += [
        BrokerRegistered(
            one.id,
            one.epoch,
            one.incarnation_id,
            one.endpoints,
            one.rack,
            one.fenced,
            one.in_controlled_shutdown,
            one.directory_id,
        )
        for one in image.brokers.values()
    ]
    records.append(BrokerEpochsUsed(image.next_broker_epoch))
    for topic in image.topics.values():
        records.append(TopicCreated(topic.id, topic.name))
        records += [
            PartitionCreated(topic.id, index, state) for index, state in enumerate(topic.partitions)
        ]
    records += [
        ConfigChanged(resource, key, value)
        for resource, configs in image.configs.items()
        for key, value in configs.items()
    ]
    records.append(ProducerIdsAllocated(-1, -1, image.next_producer_id))
    return records


def restore(records: Iterable[Record], version: int) -> ClusterImage:
    """The image of a snapshot."""
    return apply(EMPTY, records, version)


class _Builder:
    """The next image while it is made; a mapping is shared with the old one until it changes."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.cluster_id = image.cluster_id
        self.next_producer_id = image.next_producer_id
        self.next_broker_epoch = image.next_broker_epoch
        self._brokers: dict[int, Broker] | None = None
        self._topics: dict[str, Topic] | None = None
        self._names: dict[bytes, str] | None = None
        self._configs: dict[Resource, dict[str, str]] | None = None
        self._owned_configs: set[Resource] = set()
        self._features: dict[str, int] | None = None
        self._partitions: dict[bytes, list[PartitionState]] = {}

    @property
    def brokers(self) -> dict[int, Broker]:
        if self._brokers is None:
            self._brokers = dict(self.image.brokers)
        return self._brokers

    @property
    def topics(self) -> dict[str, Topic]:
        if self._topics is None:
            self._topics = dict(self.image.topics)
        return self._topics

    @property
    def names(self) -> dict[bytes, str]:
        if self._names is None:
            self._names = dict(self.image.topic_names)
        return self._names

    @property
    def features(self) -> dict[str, int]:
        if self._features is None:
            self._features = dict(self.image.features)
        return self._features

    @property
    def configs(self) -> dict[Resource, dict[str, str]]:
        if self._configs is None:
            # The inner mappings stay the old image's until `config_of` copies one.
            self._configs = dict(self.image.configs)  # type: ignore[arg-type]
        return self._configs

    def config_of(self, resource: Resource) -> dict[str, str]:
        if resource not in self._owned_configs:
            self._owned_configs.add(resource)
            self.configs[resource] = dict(self.configs.get(resource, {}))
        return self.configs[resource]

    def drop_config(self, resource: Resource) -> None:
        if resource in self.image.configs or self._configs is not None:
            self.configs.pop(resource, None)
            self._owned_configs.discard(resource)

    def name_of(self, topic_id: bytes) -> str:
        names = self.image.topic_names if self._names is None else self._names
        return names[topic_id]

    def partitions_of(self, topic_id: bytes) -> list[PartitionState]:
        found = self._partitions.get(topic_id)
        if found is None:
            found = list(self.topics[self.name_of(topic_id)].partitions)
            self._partitions[topic_id] = found
        return found

    def forget_partitions(self, topic_id: bytes) -> None:
        self._partitions.pop(topic_id, None)

    def build(self, version: int) -> ClusterImage:
        for topic_id, states in self._partitions.items():
            name = self.name_of(topic_id)
            self.topics[name] = Topic(topic_id, name, tuple(states))
        old = self.image
        return ClusterImage(
            cluster_id=self.cluster_id,
            version=version,
            brokers=old.brokers if self._brokers is None else self._brokers,
            topics=old.topics if self._topics is None else self._topics,
            topic_names=old.topic_names if self._names is None else self._names,
            configs=old.configs if self._configs is None else self._configs,
            features=old.features if self._features is None else self._features,
            next_producer_id=self.next_producer_id,
            next_broker_epoch=self.next_broker_epoch,
        )


def _cluster_created(to: _Builder, record: ClusterCreated) -> None:
    assert to.cluster_id in {"", record.cluster_id}, "a cluster keeps its id"
    to.cluster_id = record.cluster_id


def _broker_registered(to: _Builder, record: BrokerRegistered) -> None:
    to.brokers[record.broker_id] = Broker(
        record.broker_id,
        record.epoch,
        record.incarnation_id,
        record.endpoints,
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        record.directory_id,
    )
    to.next_broker_epoch = max(to.next_broker_epoch, record.epoch + 1)


def _broker_fenced(to: _Builder, record: BrokerFenced) -> None:
    to.brokers[record.broker_id] = replace(to.brokers[record.broker_id], fenced=True)


def _broker_unfenced(to: _Builder, record: BrokerUnfenced) -> None:
    to.brokers[record.broker_id] = replace(to.brokers[record.broker_id], fenced=False)


def _broker_shutting_down(to: _Builder, record: BrokerShuttingDown) -> None:
    broker = to.brokers[record.broker_id]
    to.brokers[record.broker_id] = replace(broker, in_controlled_shutdown=True)


def _broker_unregistered(to: _Builder, record: BrokerUnregistered) -> None:
    del to.brokers[record.broker_id]
    to.drop_config(Resource(ResourceType.BROKER, str(record.broker_id)))


def _broker_epochs_used(to: _Builder, record: BrokerEpochsUsed) -> None:
    to.next_broker_epoch = max(to.next_broker_epoch, record.next_broker_epoch)


def _topic_created(to: _Builder, record: TopicCreated) -> None:
    assert record.name not in to.topics, f"topic {record.name} exists"
    assert record.topic_id not in to.names, f"topic id of {record.name} is in use"
    to.names[record.topic_id] = record.name
    to.topics[record.name] = Topic(record.topic_id, record.name)


def _partition_created(to: _Builder, record: PartitionCreated) -> None:
    states = to.partitions_of(record.topic_id)
    assert record.partition == len(states), "partitions are created in order"
    states.append(record.state)


def _partition_changed(to: _Builder, record: PartitionChanged) -> None:
    states = to.partitions_of(record.topic_id)
    old, new = states[record.partition], record.state
    assert new.partition_epoch == old.partition_epoch + 1, f"{old} -> {new}"
    assert new.leader_epoch >= old.leader_epoch, f"{old} -> {new}"
    assert new.leader == old.leader or new.leader_epoch > old.leader_epoch, f"{old} -> {new}"
    states[record.partition] = new


def _topic_deleted(to: _Builder, record: TopicDeleted) -> None:
    to.forget_partitions(record.topic_id)
    name = to.names.pop(record.topic_id)
    del to.topics[name]
    to.drop_config(Resource(ResourceType.TOPIC, name))


def _config_changed(to: _Builder, record: ConfigChanged) -> None:
    configs = to.config_of(record.resource)
    if record.value is None:
        configs.pop(record.key, None)
    else:
        configs[record.key] = record.value
    if not configs:
        to.drop_config(record.resource)


def _producer_ids(to: _Builder, record: ProducerIdsAllocated) -> None:
    assert record.next_producer_id >= to.next_producer_id, "producer ids are never given twice"
    to.next_producer_id = record.next_producer_id


def _feature_level(to: _Builder, record: FeatureLevel) -> None:
    if record.level == 0:
        to.features.pop(record.name, None)
    else:
        to.features[record.name] = record.level


_APPLY: Final[dict[type[Any], Any]] = {
    ClusterCreated: _cluster_created,
    BrokerRegistered: _broker_registered,
    BrokerFenced: _broker_fenced,
    BrokerUnfenced: _broker_unfenced,
    BrokerShuttingDown: _broker_shutting_down,
    BrokerUnregistered: _broker_unregistered,
    BrokerEpochsUsed: _broker_epochs_used,
    TopicCreated: _topic_created,
    PartitionCreated: _partition_created,
    PartitionChanged: _partition_changed,
    TopicDeleted: _topic_deleted,
    ConfigChanged: _config_changed,
    ProducerIdsAllocated: _producer_ids,
    FeatureLevel: _feature_level,
}
