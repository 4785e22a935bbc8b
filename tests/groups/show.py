"""Records and responses as short lines, for scenario files."""

from chronik.groups.records import GroupMetadataRecord, Record
from chronik.groups.responses import (
    DeleteGroupResponse,
    DescribeGroupResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    PartitionResult,
    Response,
    SyncGroupResponse,
)
from chronik.model.errors import ErrorCode


def show_record(record: Record) -> str:
    """One record of the log."""
    if isinstance(record, GroupMetadataRecord):
        if record.value is None:
            return f"group {record.group_id} tombstone"
        members = [f"{m.member_id}:{m.assignment.decode()}" for m in record.value.members]
        name = f"group {record.group_id} generation={record.value.generation}"
        return f"{name} members=[{' '.join(members)}]"
    place = f"{record.group_id} {record.topic}/{record.partition}"
    return f"offset {place}={'tombstone' if record.value is None else record.value.offset}"


def show_response(response: Response) -> str:  # noqa: C901, PLR0911, PLR0912 - a table as a match
    """One response."""
    match response:
        case JoinGroupResponse():
            return f"join {_show_join(response)}"
        case SyncGroupResponse(error=ErrorCode.NONE):
            return f"sync {response.assignment.decode() or '(nothing)'}"
        case SyncGroupResponse():
            return f"sync {response.error.name}"
        case HeartbeatResponse():
            return f"heartbeat {_name(response.error)}"
        case LeaveGroupResponse():
            return f"leave {_show_leave(response)}"
        case OffsetCommitResponse():
            return f"commit {_show_partitions(response.partitions)}"
        case OffsetFetchResponse():
            found = [f"{p.topic}/{p.partition}={p.offset}" for p in response.partitions]
            return " ".join(found) or "none"
        case OffsetDeleteResponse(error=ErrorCode.NONE):
            return f"delete-offsets {_show_partitions(response.partitions)}"
        case OffsetDeleteResponse():
            return f"delete-offsets {response.error.name}"
        case ListGroupsResponse():
            listed = [f"{g.group_id}({g.protocol_type or '-'},{g.state})" for g in response.groups]
            return " ".join(listed) or "none"
        case DescribeGroupResponse():
            return f"describe {_show_describe(response)}"
        case DeleteGroupResponse():
            return f"delete {_name(response.error)}"


def _name(error: ErrorCode) -> str:
    return "ok" if error is ErrorCode.NONE else error.name


def _show_join(response: JoinGroupResponse) -> str:
    if response.error is not ErrorCode.NONE:
        with_id = f" id={response.member_id}" if response.member_id else ""
        return response.error.name + with_id
    text = (
        f"ok id={response.member_id} generation={response.generation_id}"
        f" protocol={response.protocol_name} leader={response.leader}"
    )
    if response.members:
        text += f" members=[{' '.join(m.member_id for m in response.members)}]"
    return text + (" skip_assignment" if response.skip_assignment else "")


def _show_leave(response: LeaveGroupResponse) -> str:
    if response.error is not ErrorCode.NONE:
        return response.error.name
    named = [(m.member_id or m.group_instance_id or "?", m.error) for m in response.members]
    return " ".join(f"{name}={_name(error)}" for name, error in named)


def _show_partitions(partitions: tuple[PartitionResult, ...]) -> str:
    return " ".join(f"{p.topic}/{p.partition}={_name(p.error)}" for p in partitions)


def _show_describe(response: DescribeGroupResponse) -> str:
    members = [f"{m.member_id}:{m.assignment.decode()}" for m in response.members]
    text = f"{response.state} type={response.protocol_type or '-'}"
    text += f" protocol={response.protocol_name or '-'} members=[{' '.join(members)}]"
    return text if response.error is ErrorCode.NONE else f"{response.error.name} {text}"
