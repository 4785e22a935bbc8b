"""LeaveGroup (13), versions 0-5: members go, and the others take over their partitions.

KIP-345 (several members, by instance id too, v3). The reason (KIP-800) is not kept.
"""

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.groups import commands, responses
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)


async def handle(broker: Broker, _call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """One answer per member; before v3 `wire/versions.py` makes the only one's the request's."""
    if not request.group_id:  # a group of that name may exist, but only to keep offsets
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    members = tuple(
        commands.LeavingMember(one.member_id, one.group_instance_id) for one in request.members
    )
    command = commands.LeaveGroup(request.group_id, members)
    try:
        answer = await broker.coordinators.submit(request.group_id, command)
    except CoordinatorError as error:
        return LeaveGroupResponse(error_code=error.code)
    assert isinstance(answer, responses.LeaveGroupResponse)
    return LeaveGroupResponse(
        error_code=answer.error,
        members=[
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                error_code=one.error,
            )
            for one in answer.members
        ],
    )
