"""AddRaftVoter (80), versions 0-1: one more voter of the metadata log (KIP-853).

The node gets the log first and its vote when it has caught up. A listener in the request says where
it is reached, for a node that has not joined by itself. Not done: directory ids, which are ignored.
"""

from chronik.broker import membership
from chronik.broker.broker import Broker
from chronik.cluster.commands import Error
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.model.limits import HOST_LENGTH_MAX
from chronik.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

VERSION = 1
TIMEOUT_S_MAX = 60.0


async def handle(broker: Broker, call: Call, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """The leader answers; any other node asks it."""
    timeout_s = min(max(request.timeout_ms, 0) / 1000, TIMEOUT_S_MAX)
    if not call.peer.internal:
        answer = await membership.ask_leader(
            broker, request, AddRaftVoterResponse, VERSION, timeout_s
        )
        if answer is not None:
            return answer
    error = await _add(broker, request, timeout_s)
    return AddRaftVoterResponse(error_code=error.code, error_message=error.message)


async def _add(broker: Broker, request: AddRaftVoterRequest, timeout_s: float) -> Error:
    cluster_id = broker.controller.image.cluster_id
    if request.cluster_id not in {None, cluster_id}:
        return Error(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {cluster_id}")
    if not broker.controller.leads:
        return Error(ErrorCode.NOT_CONTROLLER, "no controller answers at the moment")
    address = next(((one.host, one.port) for one in request.listeners), None)
    if address is not None and not _is_address(*address):
        return Error(ErrorCode.INVALID_REQUEST, f"{address[0]!r}:{address[1]} is no address")
    return await membership.add_voter(broker, request.voter_id, address, timeout_s)


def _is_address(host: str, port: int) -> bool:
    return 0 < len(host) <= HOST_LENGTH_MAX and host.isprintable() and " " not in host and port > 0
