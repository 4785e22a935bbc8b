"""One look at a whole cluster, as its nodes tell it, and what is wrong with it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from chronik.cli._wire import Connection, NoAnswerError, connected
from chronik.model.errors import ErrorCode
from chronik.model.names import METADATA_TOPIC
from chronik.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from chronik.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from chronik.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from chronik.wire.messages.metadata import MetadataRequest, MetadataResponse

AHEAD_WARN = 10
AHEAD_ALARM = 100
"""Messages by which a leader's log end may run ahead of the watermark."""
METADATA_LAG_WARN = 100
NODE_SECONDS_MAX = 5.0
CONSUMER = -1
DEBUGGING = -2
"""The replica id with which ListOffsets tells the log end instead of the watermark."""
LATEST = -1
Key = tuple[str, int]
_ELECT = "'chronik cluster elect-unclean --help'"


@dataclass(slots=True)
class BrokerView:
    """One registered node."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    leaders: int = 0
    replicas: int = 0
    is_reachable: bool | None = None
    """None where nobody tried."""


@dataclass(slots=True)
class PartitionView:
    """One partition; `replicas` holds those that move in and out too."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    ahead: int | None = None
    """Messages of the leader's log that were not committed a moment later."""

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once what moves has moved."""
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def is_under_replicated(self) -> bool:
        """Fewer in sync than there should be; those that are moving in do not count yet."""
        settled = [one for one in self.replicas if one not in self.adding]
        return any(one not in self.isr for one in settled)


@dataclass(slots=True)
class ClusterState:
    """Everything."""

    cluster_id: str
    brokers: dict[int, BrokerView]
    partitions: dict[Key, PartitionView]
    topics: int
    leader: int = -1
    term: int = -1
    committed: int = -1
    voters: dict[int, int] = field(default_factory=dict)
    """Node id to the end of its metadata log; -1 where the leader does not know."""
    learners: dict[int, int] = field(default_factory=dict)

    @property
    def live(self) -> list[int]:
        """The nodes that serve, by id."""
        return sorted(one.id for one in self.brokers.values() if not one.is_fenced)

    @property
    def targets(self) -> dict[Key, tuple[int, ...]]:
        """Every partition's replicas, with what moves already there."""
        return {key: one.target for key, one in self.partitions.items()}

    def lag(self, node_id: int) -> int | None:
        """Entries of the metadata log that a node lacks."""
        end = {**self.voters, **self.learners}.get(node_id, -1)
        last = max([self.committed, *self.voters.values()])
        return None if end < 0 else max(0, last - end)

    @property
    def moving(self) -> list[Key]:
        """Partitions whose replicas move."""
        return [key for key, one in self.partitions.items() if one.adding or one.removing]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that an operator should look at."""

    level: Literal["warn", "alarm"]
    text: str


def look(bootstrap: str, *, offsets: bool = False) -> ClusterState:
    """The cluster as its controller sees it; with `offsets` every leader is asked too."""
    with connected(bootstrap) as first:
        cluster = _described(first)
        state = _seen_by_controller(cluster) or _seen(first)
    if offsets:
        _add_offsets(state)
    return state


def _seen_by_controller(cluster: DescribeClusterResponse) -> ClusterState | None:
    """What the node that decides sees: others may lag behind it."""
    for broker in cluster.brokers:
        if broker.broker_id == cluster.controller_id:
            try:
                connection = Connection((broker.host, broker.port), NODE_SECONDS_MAX)
                state = _seen(connection)
                connection.close()
            except NoAnswerError:
                return None
            return state
    return None


def _seen(connection: Connection) -> ClusterState:
    state = _state(_described(connection), connection)
    _add_quorum(state, connection)
    _add_moves(state, connection)
    return state


def _described(connection: Connection) -> DescribeClusterResponse:
    request = DescribeClusterRequest(endpoint_type=1, include_fenced_brokers=True)
    return connection.ask(request, DescribeClusterResponse)


def _state(cluster: DescribeClusterResponse, connection: Connection) -> ClusterState:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    metadata = connection.ask(request, MetadataResponse)
    state = ClusterState(
        cluster_id=cluster.cluster_id,
        brokers={
            one.broker_id: BrokerView(one.broker_id, one.host, one.port, one.rack, one.is_fenced)
            for one in sorted(cluster.brokers, key=lambda it: it.broker_id)
        },
        partitions={
            (topic.name or "", one.partition_index): PartitionView(
                one.leader_id, tuple(one.replica_nodes), tuple(one.isr_nodes)
            )
            for topic in metadata.topics
            for one in topic.partitions
        },
        topics=len(metadata.topics),
    )
    for partition in state.partitions.values():
        if partition.leader in state.brokers:
            state.brokers[partition.leader].leaders += 1
        for replica in partition.replicas:
            if replica in state.brokers:
                state.brokers[replica].replicas += 1
    return state


def _add_quorum(state: ClusterState, connection: Connection) -> None:
    topic = RequestTopicData(
        topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)]
    )
    answer = connection.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    if answer.error_code or not answer.topics:
        return
    (found,) = answer.topics[0].partitions
    state.leader, state.term = found.leader_id, found.leader_epoch
    state.committed = found.high_watermark
    state.voters = {one.replica_id: one.log_end_offset for one in found.current_voters}
    state.learners = {one.replica_id: one.log_end_offset for one in found.observers}


def _add_moves(state: ClusterState, connection: Connection) -> None:
    request = ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None)
    for topic in connection.ask(request, ListPartitionReassignmentsResponse).topics:
        for one in topic.partitions:
            view = state.partitions.get((topic.name, one.partition_index))
            if view is not None:
                view.replicas = tuple(one.replicas)
                view.adding = tuple(one.adding_replicas)
                view.removing = tuple(one.removing_replicas)


# -- log ends and watermarks


def _add_offsets(state: ClusterState) -> None:
    for broker in state.brokers.values():
        led = [key for key, one in state.partitions.items() if one.leader == broker.id]
        if broker.is_fenced:
            continue
        try:
            connection = Connection((broker.host, broker.port), NODE_SECONDS_MAX)
            # First the ends, then the watermarks: what was written between the two does not count.
            ends = _offsets(connection, led, DEBUGGING)
            marks = _offsets(connection, led, CONSUMER)
            connection.close()
        except NoAnswerError:
            broker.is_reachable = False
            continue
        broker.is_reachable = True
        for key in ends.keys() & marks.keys():
            state.partitions[key].ahead = max(0, ends[key] - marks[key])


def _offsets(connection: Connection, keys: Iterable[Key], replica_id: int) -> dict[Key, int]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in keys:
        wanted = ListOffsetsPartition(
            partition_index=index, current_leader_epoch=-1, timestamp=LATEST
        )
        topics.setdefault(topic, []).append(wanted)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        topics=[ListOffsetsTopic(name=name, partitions=many) for name, many in topics.items()],
    )
    return {
        (topic.name, one.partition_index): one.offset
        for topic in connection.ask(request, ListOffsetsResponse).topics
        for one in topic.partitions
        if one.error_code == ErrorCode.NONE and one.offset >= 0
    }


# -- what is wrong


def problems(state: ClusterState) -> list[Problem]:
    """The worst first."""
    found = [*_node_problems(state), *_quorum_problems(state), *_partition_problems(state)]
    return sorted(found, key=lambda one: one.level)


def _node_problems(state: ClusterState) -> Iterator[Problem]:
    for broker in state.brokers.values():
        where = f"node {broker.id} ({broker.host}:{broker.port})"
        if broker.is_fenced:
            yield Problem("alarm", f"{where} is fenced: it is down, or cannot reach the others")
        elif broker.is_reachable is False:
            yield Problem("alarm", f"{where} cannot be reached from here")


def _quorum_problems(state: ClusterState) -> Iterator[Problem]:
    if state.leader < 0:
        yield Problem("alarm", "the metadata log has no leader: is a majority of voters running?")
        return
    up = [one for one in state.voters if one in state.live]
    spare = len(up) - (len(state.voters) // 2 + 1)
    if len(up) < len(state.voters) and spare <= 0:
        text = f"{len(up)} of {len(state.voters)} voters run: the next failure stops the cluster"
        yield Problem("alarm", text)
    for node_id in state.voters:
        lag = state.lag(node_id)
        if lag is not None and lag > METADATA_LAG_WARN and node_id in state.live:
            yield Problem("warn", f"voter {node_id} lacks {lag} entries of the metadata log")


def _partition_problems(state: ClusterState) -> Iterator[Problem]:
    groups = {
        ("alarm", "without a leader"): [
            k for k, p in state.partitions.items() if p.leader < 0 and p.isr
        ],
        ("alarm", f"without a replica that has all messages, see {_ELECT}"): [
            k for k, p in state.partitions.items() if p.leader < 0 and not p.isr
        ],
        ("warn", "under-replicated"): [
            k for k, p in state.partitions.items() if p.is_under_replicated
        ],
        ("alarm", f"with a log end more than {AHEAD_ALARM} messages ahead of the watermark"): [
            k for k, p in state.partitions.items() if (p.ahead or 0) > AHEAD_ALARM
        ],
        ("warn", f"with a log end more than {AHEAD_WARN} messages ahead of the watermark"): [
            k for k, p in state.partitions.items() if AHEAD_WARN < (p.ahead or 0) <= AHEAD_ALARM
        ],
    }
    for (level, what), keys in groups.items():
        if keys:
            assert level in {"warn", "alarm"}
            noun = "partition" if len(keys) == 1 else "partitions"
            text = f"{len(keys)} {noun} {what}: {_some(keys)}"
            yield Problem("alarm" if level == "alarm" else "warn", text)


def _some(keys: list[Key], most: int = 5) -> str:
    shown = ", ".join(f"{topic}-{index}" for topic, index in keys[:most])
    return shown + (f" and {len(keys) - most} more" if len(keys) > most else "")
