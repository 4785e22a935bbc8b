"""Heartbeat (12), versions 0-4: a member lives, and hears of rebalances (KIP-345, v3)."""

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.groups import commands, responses
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(broker: Broker, _call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """NONE, or why the member has to join again."""
    command = commands.Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        generation_id=request.generation_id,
        group_instance_id=request.group_instance_id,
    )
    try:
        answer = await broker.coordinators.submit(request.group_id, command)
    except CoordinatorError as error:
        # While the group loads nobody can be late; Kafka says so too.
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
    assert isinstance(answer, responses.HeartbeatResponse)
    return HeartbeatResponse(error_code=answer.error)
