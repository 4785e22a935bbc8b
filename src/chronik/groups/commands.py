"""What can be asked of a coordinator: one small value per request of one group.

A request that names several groups (OffsetFetch v8, DescribeGroups, DeleteGroups) becomes several
commands, because its groups may live in different partitions of `__consumer_offsets`.
"""

from dataclasses import dataclass

NO_MEMBER_ID = ""
NO_GENERATION = -1
NO_TOPIC_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Asks for membership of the next generation; answered when the rebalance completes."""

    group_id: str
    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """JoinGroup v0 has none: its session timeout stands for it."""
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata, the member's favourite first."""
    group_instance_id: str | None = None
    requires_known_member_id: bool = True
    """KIP-394: from v4 on, a dynamic member is first told its id."""
    supports_skipping_assignment: bool = True
    """KIP-814: from v9 on, a restarted static leader is told to leave the assignment alone."""


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """Asks for the member's assignment; the leader brings everybody's."""

    group_id: str
    member_id: str
    generation_id: int
    assignments: tuple[tuple[str, bytes], ...] = ()
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Says that a member lives."""

    group_id: str
    member_id: str
    generation_id: int
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """One member of a LeaveGroup; an administrator names it by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Removes members; one before v3, a batch since (KIP-345)."""

    group_id: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """The position a consumer has reached in one partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    topic_id: bytes = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """Stores offsets; generation -1 and no member id is a simple consumer or an administrator."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    member_id: str = NO_MEMBER_ID
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    retention_ms: int = -1
    """Only v2 to v4 may state it; -1 is the broker's own retention."""


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """Reads committed offsets; `topics` None asks for all of them."""

    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...] | None = None


@dataclass(frozen=True, slots=True)
class OffsetDelete:
    """Removes committed offsets of topics nobody in the group is subscribed to (KIP-496)."""

    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Lists the groups of this coordinator; an empty filter passes all."""

    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Shows one group with its members."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Removes an empty group with its offsets."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Tells that topics are gone, so their offsets go too; it has no wire request and no answer."""

    topics: frozenset[str]


Command = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | ListGroups
    | DescribeGroup
    | DeleteGroup
    | TopicsDeleted
)
