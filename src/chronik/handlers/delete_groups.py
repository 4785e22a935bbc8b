"""DeleteGroups (42), versions 0-2: removes groups without members, with their offsets (KIP-229)."""

import asyncio

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.groups import commands, responses
from chronik.handlers.call import Call
from chronik.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(broker: Broker, _call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """One answer per group, together: each waits for its tombstones to be committed."""
    names = dict.fromkeys(request.groups_names)  # a name given twice is deleted once
    results = await asyncio.gather(*(_delete(broker, group_id) for group_id in names))
    return DeleteGroupsResponse(results=results)


async def _delete(broker: Broker, group_id: str) -> DeletableGroupResult:
    try:
        answer = await broker.coordinators.submit(group_id, commands.DeleteGroup(group_id))
    except CoordinatorError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code)
    assert isinstance(answer, responses.DeleteGroupResponse)
    return DeletableGroupResult(group_id=group_id, error_code=answer.error)
