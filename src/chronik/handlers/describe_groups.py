"""DescribeGroups (15), versions 0-6: groups with their members and what these were assigned.

KIP-430 (what the client may do, v3: all, there are no ACLs), KIP-345 (instance ids, v4), KIP-1043
(an unknown group is an error with a message, v6; before, it is Dead).
"""

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.groups import commands, responses
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.model.operations import NOT_ASKED, ON_GROUP
from chronik.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_FIRST_VERSION_WITH_UNKNOWN_GROUPS = 6


async def handle(
    broker: Broker, call: Call, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """One answer per group."""
    return DescribeGroupsResponse(
        groups=[await _describe(broker, call, request, group_id) for group_id in request.groups]
    )


async def _describe(
    broker: Broker, call: Call, request: DescribeGroupsRequest, group_id: str
) -> DescribedGroup:
    try:
        answer = await broker.coordinators.submit(group_id, commands.DescribeGroup(group_id))
    except CoordinatorError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    assert isinstance(answer, responses.DescribeGroupResponse)
    unknown = answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    failed = unknown and call.api_version >= _FIRST_VERSION_WITH_UNKNOWN_GROUPS
    tell = request.include_authorized_operations and not failed
    return DescribedGroup(
        error_code=answer.error,
        error_message=f"Group {group_id} not found." if unknown else None,
        group_id=group_id,
        group_state=answer.state,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol_name,
        members=[_member(one) for one in answer.members],
        authorized_operations=ON_GROUP if tell else NOT_ASKED,
    )


def _member(one: responses.DescribedMember) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=one.member_id,
        group_instance_id=one.group_instance_id,
        client_id=one.client_id,
        client_host=one.client_host,
        member_metadata=one.metadata,
        member_assignment=one.assignment,
    )
