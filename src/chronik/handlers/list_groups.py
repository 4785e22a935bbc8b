"""ListGroups (16), versions 0-5: the groups that this node coordinates.

KIP-518 (states, v4), KIP-848 (types, v5). A client asks every node and joins the answers.
"""

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.groups import commands
from chronik.handlers.call import Call
from chronik.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


async def handle(broker: Broker, _call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """All groups that pass the filters; half a list would be a lie, so one failure fails all."""
    command = commands.ListGroups(tuple(request.states_filter), tuple(request.types_filter))
    try:
        answers = await broker.coordinators.submit_all(command)
    except CoordinatorError as error:
        return ListGroupsResponse(error_code=error.code)
    return ListGroupsResponse(
        error_code=next((one.error for one in answers if one.error), 0),
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for answer in answers
            for group in answer.groups
        ],
    )
