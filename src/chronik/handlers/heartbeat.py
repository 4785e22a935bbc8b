"""Heartbeat (12), versions 0-4: a member lives, and hears of rebalances (KIP-345, v3)."""

from collections.abc import Coroutine
from typing import Any

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.groups import commands, responses
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    broker: Broker, _call: Call, request: HeartbeatRequest
) -> HeartbeatResponse | Coroutine[Any, Any, HeartbeatResponse]:
    """NONE, or why the member has to join again."""
    command = commands.Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        generation_id=request.generation_id,
        group_instance_id=request.group_instance_id,
    )
    # Thousands of members say it every few seconds: where the group is loaded it takes no task.
    answer = broker.coordinators.answer_now(command)
    return _later(broker, command) if answer is None else _response(answer)


async def _later(broker: Broker, command: commands.Heartbeat) -> HeartbeatResponse:
    try:
        return _response(await broker.coordinators.submit(command.group_id, command))
    except CoordinatorError as error:
        # While the group loads nobody can be late; Kafka says so too.
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)


def _response(answer: responses.Response) -> HeartbeatResponse:
    assert isinstance(answer, responses.HeartbeatResponse)
    return HeartbeatResponse(error_code=answer.error)
