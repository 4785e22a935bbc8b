"""SyncGroup (14), versions 0-5: a member's assignment, once the leader has brought everybody's.

KIP-345 (static members, v3), KIP-559 (protocol type and name, v5).
"""

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.groups import commands, responses
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_FIRST_VERSION_WITH_PROTOCOL = 5


async def handle(broker: Broker, call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    """Answers when the assignment is committed."""
    if call.api_version >= _FIRST_VERSION_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    command = commands.SyncGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        generation_id=request.generation_id,
        assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
    )
    try:
        answer = await broker.coordinators.submit(request.group_id, command)
    except CoordinatorError as error:
        return SyncGroupResponse(error_code=error.code)
    assert isinstance(answer, responses.SyncGroupResponse)
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
