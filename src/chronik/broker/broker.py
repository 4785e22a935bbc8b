"""What handlers see of a node: its parts, each built once by `node/building.py`."""

import asyncio
import secrets
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chronik.broker.clock import Clock
from chronik.broker.commit import GroupCommit
from chronik.broker.controller import Controller
from chronik.broker.coordinators import Coordinators
from chronik.broker.disk import Disk
from chronik.broker.fetch_sessions import FetchSessions
from chronik.broker.forwarding import Forwarding
from chronik.broker.isr import IsrKeeper
from chronik.broker.metrics import ApiCounters, Metrics
from chronik.broker.outbox import Outbox
from chronik.broker.partitions import Partitions
from chronik.broker.peering import PeerApi, Peers
from chronik.broker.producer_ids import ProducerIds
from chronik.broker.recompression import Recompression
from chronik.broker.replica_sessions import ReplicaSessions
from chronik.broker.turns import Turns
from chronik.broker.unknown_topics import UnknownTopics
from chronik.model.broker_configs import RACK_AWARE_SELECTOR, effective
from chronik.model.configs import BrokerLayers
from chronik.model.settings import NodeSettings
from chronik.trace.tracer import Tracer
from chronik.wire.apis import ApiKey

_PEER_APIS = frozenset(PeerApi)


class Request(Protocol):
    """What the counters need to know of a request."""

    api_key: int
    received_ns: int


@dataclass(slots=True, kw_only=True)
class Broker:
    """The parts of one node."""

    settings: NodeSettings
    static: Mapping[str, str]
    """Static broker configs of this node."""
    loop: asyncio.AbstractEventLoop
    clock: Clock
    disk: Disk
    tracer: Tracer
    metrics: Metrics
    controller: Controller
    partitions: Partitions
    commit: GroupCommit
    outbox: Outbox
    fetch_sessions: FetchSessions
    replica_sessions: ReplicaSessions
    producer_ids: ProducerIds
    coordinators: Coordinators
    recompression: Recompression
    isr: IsrKeeper
    forwarding: Forwarding
    peers: Peers
    tasks: asyncio.TaskGroup
    turns: Turns
    """Of the long polls that were woken."""
    listener_name: str = "PLAINTEXT"
    unknown_topics: UnknownTopics = field(default_factory=UnknownTopics)
    _counters: dict[int, ApiCounters] = field(default_factory=dict)

    @property
    def node_id(self) -> int:
        """This node's number."""
        return self.settings.node_id

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a piece of work that ends with the node at the latest."""
        self.tasks.create_task(work)

    def layers(self) -> BrokerLayers:
        """Where this node's configuration comes from, strongest first."""
        return self.controller.image.layers(self.node_id, self.static)

    @property
    def auto_create_topics(self) -> bool:
        """Whether asking for a topic creates it."""
        return bool(effective("auto.create.topics.enable", self.layers()))

    @property
    def selects_by_rack(self) -> bool:
        """Whether consumers are sent to a replica in their own rack (KIP-392)."""
        return effective("replica.selector.class", self.layers()) == RACK_AWARE_SELECTOR

    def new_id(self) -> bytes:
        """Sixteen random bytes that no topic has and that are not all zero."""
        while (new := secrets.token_bytes(16)) == bytes(16) or new in (
            self.controller.image.topic_names
        ):
            pass
        return new

    def draw(self, limit: int) -> int:
        """A number below `limit`."""
        return secrets.randbelow(limit)

    def count(self, call: Request, code: int) -> None:
        """Counts an answered request and how long it took."""
        counters = self._counters.get(call.api_key)
        if counters is None:
            key = PeerApi(call.api_key) if call.api_key in _PEER_APIS else ApiKey(call.api_key)
            name = "".join(word.capitalize() for word in key.name.split("_"))
            counters = self._counters[call.api_key] = self.metrics.api(name)
        counters.answered((self.clock.monotonic_ns() - call.received_ns) // 1000, code)
