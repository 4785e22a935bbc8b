"""The metadata image: everything the cluster has agreed on, as one immutable value.

The mappings are never changed after an image was built; `apply` makes new ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from chronik.model.configs import BrokerLayers

NO_LEADER: Final = -1
"""Not a node id: a partition with this leader cannot be written or read."""
ZERO_ID: Final = bytes(16)


class ResourceType(IntEnum):
    """What a configuration belongs to (the protocol's numbers)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Resource:
    """The broker resource with the empty name is the default of all brokers."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An advertised address: what clients and other nodes connect to."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered node. `epoch` is new with every registration, so an older process is fenced."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    directory_id: bytes = b""
    """Names the disk that its logs are on (KIP-858); empty where it was never told."""

    @property
    def live(self) -> bool:
        """True where the node may lead partitions and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address behind a listener's name."""
        return next((one for one in self.endpoints if one.listener == listener), None)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who holds a partition and who leads it.

    `leader_epoch` grows with every new leader, `partition_epoch` with every change (KIP-497). An
    empty ISR says that every disk with all of the acknowledged records is lost.
    While replicas move, `replicas` holds the old and the new ones (KIP-455).
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def reassigning(self) -> bool:
        """True while replicas are being added or removed."""
        return bool(self.adding or self.removing)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The replicas once the reassignment is done."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def preferred_leader(self) -> int:
        """The first replica, which should lead when it can."""
        return self.target_replicas[0] if self.target_replicas else self.replicas[0]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; a partition's number is its place in `partitions`."""

    id: bytes
    name: str
    partitions: tuple[PartitionState, ...] = ()


_NO_CONFIGS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The whole of it. `version` tells images apart; the driver sets it to the Raft index."""

    cluster_id: str = ""
    version: int = 0
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    configs: Mapping[Resource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    next_broker_epoch: int = 1

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with an id, if it exists."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionState | None:
        """One partition by its topic's name, if both exist."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def partitions(self) -> Iterator[tuple[Topic, int, PartitionState]]:
        """Every partition, topic by topic."""
        for topic in self.topics.values():
            for index, state in enumerate(topic.partitions):
                yield topic, index, state

    def is_live(self, broker_id: int) -> bool:
        """True where a broker is registered, unfenced and not going away."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.live

    def live_brokers(self) -> list[Broker]:
        """Those of which `is_live` is true, by id."""
        return [self.brokers[one] for one in sorted(self.brokers) if self.brokers[one].live]

    def config(self, type_: ResourceType, name: str) -> Mapping[str, str]:
        """What was set for a resource."""
        return self.configs.get(Resource(type_, name), _NO_CONFIGS)

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        """What was set for a topic."""
        return self.config(ResourceType.TOPIC, topic)

    def layers(self, broker_id: int, static: Mapping[str, str]) -> BrokerLayers:
        """The sources of a node's configuration, given what its own file says."""
        return BrokerLayers(
            dynamic=self.config(ResourceType.BROKER, str(broker_id)),
            dynamic_default=self.config(ResourceType.BROKER, ""),
            static=static,
        )


EMPTY: Final = ClusterImage()


def check_invariants(image: ClusterImage) -> None:
    """Asserts what must hold in every image; tests and the simulator call it after each change."""
    assert set(image.topic_names.values()) == set(image.topics)
    assert len(image.topic_names) == len(image.topics), "two ids of one topic"
    for topic_id, name in image.topic_names.items():
        topic = image.topics[name]
        assert topic.id == topic_id, name
        assert topic.name == name, name
        assert topic.partitions, f"{name} has no partition"
    for topic, index, state in image.partitions():
        check_partition(state, f"{topic.name}-{index}")
    for broker_id, broker in image.brokers.items():
        assert broker.id == broker_id
        assert broker.epoch < image.next_broker_epoch


def check_partition(state: PartitionState, where: str = "") -> None:
    """Asserts what must hold in every partition."""
    replicas = set(state.replicas)
    assert len(replicas) == len(state.replicas) > 0, f"{where}: {state}"
    assert state.isr or state.leader == NO_LEADER, f"{where}: led by nobody who has the data"
    assert set(state.isr) <= replicas, f"{where}: {state}"
    assert len(set(state.isr)) == len(state.isr), f"{where}: {state}"
    assert state.leader == NO_LEADER or state.leader in state.isr, f"{where}: {state}"
    assert set(state.adding) | set(state.removing) <= replicas, f"{where}: {state}"
    assert not set(state.adding) & set(state.removing), f"{where}: {state}"
    assert state.target_replicas, f"{where}: {state}"
