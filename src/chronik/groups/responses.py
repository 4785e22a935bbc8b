"""What a coordinator says: responses, and the writes and replies a driver has to carry out.

Each response that may wait for a write knows its own form for the case that the write fails.
"""

from dataclasses import dataclass, field, replace

from chronik.groups.commands import NO_GENERATION, NO_MEMBER_ID
from chronik.groups.records import Record
from chronik.model.errors import ErrorCode

_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_error(error: ErrorCode) -> ErrorCode:
    """The log's error in the words a group's client understands."""
    assert error is not ErrorCode.NONE
    return _APPEND_ERRORS.get(error, error)


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupResponse:
    """Generation, protocol and leader; the leader also gets the members."""

    error: ErrorCode
    member_id: str = NO_MEMBER_ID
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False

    def failed(self, error: ErrorCode) -> "JoinGroupResponse":
        """The member did not get in; it asks again with what it sent."""
        return JoinGroupResponse(append_error(error))


@dataclass(frozen=True, slots=True)
class SyncGroupResponse:
    """The member's assignment (FM 10: protocol type and name since v5)."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""

    def failed(self, error: ErrorCode) -> "SyncGroupResponse":
        """No assignment was stored."""
        return SyncGroupResponse(append_error(error))


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """NONE, or the reason to rejoin."""

    error: ErrorCode

    def failed(self, error: ErrorCode) -> "HeartbeatResponse":
        """Heartbeats write nothing, but unloading fails whatever waits."""
        return HeartbeatResponse(append_error(error))


@dataclass(frozen=True, slots=True)
class LeftMember:
    """The fate of one member of a LeaveGroup."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveGroupResponse:
    """Before v3 a handler answers the error of the only member."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()

    def failed(self, error: ErrorCode) -> "LeaveGroupResponse":
        """The members are gone from memory all the same; a retry finds them unknown."""
        return LeaveGroupResponse(append_error(error))


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """NONE or an error for one partition."""

    topic: str
    partition: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """Every partition of the request is answered, also when the whole request is refused.

    Clients before v9 must see GROUP_ID_NOT_FOUND as ILLEGAL_GENERATION, as Kafka shows it.
    """

    partitions: tuple[PartitionResult, ...]

    def failed(self, error: ErrorCode) -> "OffsetCommitResponse":
        """No partition was stored; those refused for a reason of their own keep it."""
        if error in {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}:
            error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return OffsetCommitResponse(_fail(self.partitions, append_error(error)))


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """A committed offset; -1 where there is none."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """Every partition asked for is answered, in the order of the request."""

    error: ErrorCode
    partitions: tuple[FetchedOffset, ...] = ()

    def failed(self, error: ErrorCode) -> "OffsetFetchResponse":
        """Reads wait for nothing, but every response has the same shape."""
        return OffsetFetchResponse(append_error(error))


@dataclass(frozen=True, slots=True)
class OffsetDeleteResponse:
    """The error of the request, or one result per partition."""

    error: ErrorCode
    partitions: tuple[PartitionResult, ...] = ()

    def failed(self, error: ErrorCode) -> "OffsetDeleteResponse":
        """Nothing was deleted."""
        return OffsetDeleteResponse(append_error(error))


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """One line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class ListGroupsResponse:
    """The groups of one coordinator; a handler joins those of all."""

    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()

    def failed(self, error: ErrorCode) -> "ListGroupsResponse":
        """The list of a coordinator that is not one is empty."""
        return ListGroupsResponse(append_error(error))


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member as an administrator sees it; metadata and assignment only while Stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribeGroupResponse:
    """One group; an unknown one is Dead (KIP-1043: clients before v6 must see no error)."""

    error: ErrorCode
    group_id: str
    state: str = "Dead"
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()

    def failed(self, error: ErrorCode) -> "DescribeGroupResponse":
        """The group lives elsewhere."""
        return DescribeGroupResponse(append_error(error), self.group_id)


@dataclass(frozen=True, slots=True)
class DeleteGroupResponse:
    """NONE once the tombstones are committed."""

    error: ErrorCode

    def failed(self, error: ErrorCode) -> "DeleteGroupResponse":
        """The group is still there."""
        return DeleteGroupResponse(append_error(error))


Response = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | ListGroupsResponse
    | DescribeGroupResponse
    | DeleteGroupResponse
)


@dataclass(frozen=True, slots=True)
class Reply:
    """A response and the opaque token its command came with."""

    reply_to: object
    response: Response


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """Records to append in one batch, and the replies that leave when they are committed."""

    group_id: str
    records: tuple[Record, ...]
    replies: tuple[Reply, ...] = ()


@dataclass(slots=True)
class Output:
    """What one step asks of its driver: replies go out at once, writes in this order to the log."""

    replies: list[Reply] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)


def _fail(partitions: tuple[PartitionResult, ...], error: ErrorCode) -> tuple[PartitionResult, ...]:
    return tuple(
        replace(result, error=error) if result.error is ErrorCode.NONE else result
        for result in partitions
    )
