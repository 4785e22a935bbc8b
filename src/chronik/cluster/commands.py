"""What the controller can be asked, and what it answers.

A command is a value; `decide` turns it into records and a result of the type named in brackets.
New ids and other chance are part of the command, so that deciding is repeatable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Generic, TypeVar

from chronik.cluster.image import Endpoint
from chronik.cluster.records import Record
from chronik.model.errors import ErrorCode
from chronik.model.limits import PARTITIONS_PER_REQUEST_MAX

R_co = TypeVar("R_co", covariant=True)

PRODUCER_ID_BLOCK: Final = 1000


class Command(Generic[R_co]):
    """The base of commands; R_co is the type of the answer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Decision(Generic[R_co]):
    """Records to commit, and the answer once they are. No records: nothing changes."""

    records: tuple[Record, ...]
    result: R_co


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the controller's node says for all of the cluster."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    partitions_per_request_max: int = PARTITIONS_PER_REQUEST_MAX
    delete_topic_enable: bool = True
    place_on_fenced: bool = False
    """Whether a new replica may be placed on a fenced broker when the live ones are too few."""
    static_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Error:
    """A code and what to do about it; `OK` where nothing is wrong."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @property
    def failed(self) -> bool:
        """True for anything but NONE."""
        return self.code is not ErrorCode.NONE


OK: Final = Error()


# Topics


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 takes the default. `assignments` are (partition, replicas). The id is random bytes."""

    name: str
    topic_id: bytes
    partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The answer for one topic."""

    name: str
    error: Error = OK
    topic_id: bytes = bytes(16)
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopics(Command[tuple[CreatedTopic, ...]]):
    """`start_index` says where placement begins; any number will do."""

    topics: tuple[NewTopic, ...]
    start_index: int = 0
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class TopicRef:
    """A topic by name or by id, not both."""

    name: str | None = None
    topic_id: bytes = bytes(16)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """The answer for one topic."""

    name: str | None
    topic_id: bytes
    error: Error = OK


@dataclass(frozen=True, slots=True)
class DeleteTopics(Command[tuple[DeletedTopic, ...]]):
    """One answer per reference, in order."""

    topics: tuple[TopicRef, ...]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """`count` is the new total; `assignments` are the replicas of the new ones, or None."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class NamedError:
    """The answer for one named thing."""

    name: str
    error: Error = OK


@dataclass(frozen=True, slots=True)
class CreatePartitions(Command[tuple[NamedError, ...]]):
    """One answer per topic, in order."""

    topics: tuple[NewPartitions, ...]
    start_index: int = 0
    validate_only: bool = False


# Configuration


class AlterOp(IntEnum):
    """IncrementalAlterConfigs' operations (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigOp:
    """One change; `op` is the number of the request, which may be unknown."""

    key: str
    op: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ResourceError:
    """The answer for one resource, by the numbers and names of the request."""

    resource_type: int
    name: str
    error: Error = OK


@dataclass(frozen=True, slots=True)
class ResourceOps:
    """The changes of one resource."""

    resource_type: int
    name: str
    ops: tuple[ConfigOp, ...]


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs(Command[tuple[ResourceError, ...]]):
    """A resource changes wholly or not at all."""

    resources: tuple[ResourceOps, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ResourceConfigs:
    """All that one resource shall have."""

    resource_type: int
    name: str
    configs: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs(Command[tuple[ResourceError, ...]]):
    """The older form: what is not named goes back to its default."""

    resources: tuple[ResourceConfigs, ...]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class SetFeature(Command[Error]):
    """Raises or lowers a feature's level."""

    name: str
    level: int


# Brokers


@dataclass(frozen=True, slots=True)
class CreateCluster(Command[Error]):
    """Gives the cluster its id, once."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class Registration:
    """The answer to a registration."""

    error: Error = OK
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class RegisterBroker(Command[Registration]):
    """A node's process starts. `session_valid`: the process registered before still reports.

    `directory_id` is its disk's (KIP-858): a new one has none of the logs that the old one had.
    """

    broker_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    cluster_id: str | None = None
    session_valid: bool = False
    directory_id: bytes = b""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The answer to a heartbeat."""

    error: Error = OK
    caught_up: bool = False
    fenced: bool = True
    should_shut_down: bool = False


@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(Command[Heartbeat]):
    """A node reports. `caught_up`: it has applied at least its own registration."""

    broker_id: int
    epoch: int
    caught_up: bool = True
    want_fence: bool = False
    want_shutdown: bool = False


@dataclass(frozen=True, slots=True)
class FenceBroker(Command[Error]):
    """A node's session ended. With an epoch, only that registration is fenced."""

    broker_id: int
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Command[Error]):
    """A node is removed for good; its replicas stay assigned until they are moved."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """`length` ids from `start` on belong to the broker that asked."""

    error: Error = OK
    start: int = -1
    length: int = 0


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Command[ProducerIds]):
    """A block of producer ids (KIP-730)."""

    broker_id: int
    broker_epoch: int


# Partitions


@dataclass(frozen=True, slots=True)
class IsrChange:
    """`isr` holds (broker id, broker epoch); epoch -1 is not checked (KIP-903)."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The answer for one partition: its state after the change, or as it is."""

    topic_id: bytes
    partition: int
    error: Error = OK
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True)
class PartitionsAltered:
    """The answer to AlterPartition; `error` concerns the whole request."""

    error: Error = OK
    partitions: tuple[IsrChanged, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartition(Command[PartitionsAltered]):
    """A leader proposes ISRs (KIP-497)."""

    broker_id: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]


class ElectionType(IntEnum):
    """ElectLeaders' types."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class PartitionError:
    """The answer for one partition."""

    topic: str
    partition: int
    error: Error = OK


@dataclass(frozen=True, slots=True)
class ElectLeaders(Command[tuple[PartitionError, ...]]):
    """`partitions` None means all; then only those that changed or failed are answered."""

    election_type: int
    partitions: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """`replicas` None cancels a reassignment that goes on."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class AlterReassignments(Command[tuple[PartitionError, ...]]):
    """Moves replicas (KIP-455)."""

    reassignments: tuple[Reassignment, ...]
