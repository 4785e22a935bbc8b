"""RemoveRaftVoter (81), version 0: one voter less of the metadata log (KIP-853).

Not done: directory ids, which are ignored.
"""

from chronik.broker import membership
from chronik.broker.broker import Broker
from chronik.cluster.commands import Error
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

VERSION = 0


async def handle(
    broker: Broker, call: Call, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """The leader answers; any other node asks it."""
    if not call.peer.internal:
        answer = await membership.ask_leader(
            broker, request, RemoveRaftVoterResponse, VERSION, membership.CHANGE_TIMEOUT_S
        )
        if answer is not None:
            return answer
    error = await _remove(broker, request)
    return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)


async def _remove(broker: Broker, request: RemoveRaftVoterRequest) -> Error:
    cluster_id = broker.controller.image.cluster_id
    if request.cluster_id not in {None, cluster_id}:
        return Error(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {cluster_id}")
    if not broker.controller.leads:
        return Error(ErrorCode.NOT_CONTROLLER, "no controller answers at the moment")
    return await membership.remove_voter(broker, request.voter_id)
