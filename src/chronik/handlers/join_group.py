"""JoinGroup (11), versions 0-9: membership of the next generation, when it is formed.

KIP-62 (rebalance timeout, v1), KIP-394 (the id comes first, v4), KIP-345 (static members, v5),
KIP-814 (a restarted static leader skips the assignment, v9). The reason (KIP-800) is not kept.
"""

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.groups import commands, responses
from chronik.handlers.call import Call
from chronik.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

_FIRST_VERSION_WITH_MEMBER_ID_REQUIRED = 4
_FIRST_VERSION_WITH_NO_PROTOCOL = 7
_FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9


async def handle(broker: Broker, call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    """Answers at the end of the rebalance, which may take as long as the slowest member may."""
    try:
        answer = await broker.coordinators.submit(request.group_id, _command(call, request))
    except CoordinatorError as error:
        answer = responses.JoinGroupResponse(error.code, request.member_id)
    assert isinstance(answer, responses.JoinGroupResponse)
    return _response(answer, call.api_version)


def _command(call: Call, request: JoinGroupRequest) -> commands.JoinGroup:
    return commands.JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        client_id=call.client_id or "",
        client_host=f"/{call.peer.host}",  # as Java prints an address, which tools expect
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, one.metadata) for one in request.protocols),
        group_instance_id=request.group_instance_id,
        requires_known_member_id=call.api_version >= _FIRST_VERSION_WITH_MEMBER_ID_REQUIRED,
        supports_skipping_assignment=call.api_version >= _FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT,
    )


def _response(answer: responses.JoinGroupResponse, version: int) -> JoinGroupResponse:
    no_protocol = None if version >= _FIRST_VERSION_WITH_NO_PROTOCOL else ""
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name or no_protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                metadata=one.metadata,
            )
            for one in answer.members
        ],
    )
