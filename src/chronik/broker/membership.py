"""Who takes part in the metadata log: nodes that join, voters that come and go, who leads it.

A new node is a learner first: it gets the log and has no vote. It becomes a voter when it has what
the others have, so that no commit ever waits for it to catch up. Only the leader changes members;
every call here says NOT_CONTROLLER anywhere else, and finds what was done already done.
"""

import asyncio
from typing import TypeVar

from chronik.broker.broker import Broker
from chronik.broker.controller import ControllerUnavailableError
from chronik.broker.peering import PeerApi, PeerUnavailableError
from chronik.cluster.command_codec import decode_value, encode_value
from chronik.cluster.commands import OK, Error
from chronik.model.errors import ErrorCode
from chronik.raft.messages import ConfChange, ConfChangeType, MemberChange
from chronik.raft.state import DropReason, ProposalDropped
from chronik.wire.codec import WireError, decode, encode
from chronik.wire.schema import Message

PEER_LISTENER = "PEER"
"""The name under which a registration carries the address for other nodes."""
RETRY_S = 0.05
CHANGE_TIMEOUT_S = 5.0
TRANSFER_TIMEOUT_S = 3.0
MARGIN_S = 2.0
"""How much longer than the request's own time the leader has for its answer."""
M = TypeVar("M", bound=Message)
_NOT_CONTROLLER = Error(ErrorCode.NOT_CONTROLLER, "no controller answers at the moment")


async def ask_leader(
    broker: Broker, request: Message, response: type[M], version: int, timeout_s: float
) -> M | None:
    """The answer of the node that leads; None where this one does, or nobody answers."""
    leader = broker.controller.leader_id
    if leader in {broker.node_id, -1}:
        return None
    try:
        body = encode(request, version)
        key, limit_s = request.API_KEY, timeout_s + MARGIN_S
        return decode(
            response, version, await broker.peers.call(leader, key, version, [body], limit_s)
        )
    except (PeerUnavailableError, WireError):
        return None


async def serve_join(broker: Broker, data: memoryview) -> bytes:
    """A node that is new to the cluster asks to get the log; answered by the leader."""
    node_id, host, port, is_forwarded = decode_value(data)
    leader = broker.controller.leader_id
    if leader == broker.node_id:
        return encode_value(await add_learner(broker, node_id, host, port))
    if leader < 0 or is_forwarded:
        return encode_value(_NOT_CONTROLLER)
    body = encode_value((node_id, host, port, True))
    try:
        return bytes(
            await broker.peers.call(leader, PeerApi.JOIN, 0, [body], CHANGE_TIMEOUT_S + MARGIN_S)
        )
    except PeerUnavailableError as error:
        return encode_value(Error(ErrorCode.NOT_CONTROLLER, str(error)))


async def add_learner(broker: Broker, node_id: int, host: str, port: int) -> Error:
    """From now on the node gets the log. One that lives elsewhere keeps its place."""
    quorum = broker.controller.quorum()
    if node_id in quorum.voters or broker.controller.image.is_live(node_id):
        return OK if node_id in (*quorum.voters, *quorum.learners) else _taken(node_id)
    broker.peers.set_address(node_id, host, port)
    if node_id in quorum.learners:
        return OK
    return await _change(broker, ConfChangeType.ADD_LEARNER, node_id, CHANGE_TIMEOUT_S)


def _taken(node_id: int) -> Error:
    text = f"another node with id {node_id} is alive: change node.id"
    return Error(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text)


async def add_voter(
    broker: Broker, node_id: int, address: tuple[str, int] | None, timeout_s: float
) -> Error:
    """A vote for a node, once its log is level with the others'."""
    controller, deadline = broker.controller, broker.loop.time() + timeout_s
    quorum = controller.quorum()
    if node_id in quorum.voters:
        return Error(ErrorCode.DUPLICATE_VOTER, f"node {node_id} is a voter already")
    if node_id not in quorum.learners:
        if address is None:
            text = f"node {node_id} has not joined: start it with --join and the cluster's peers"
            return Error(ErrorCode.VOTER_NOT_FOUND, text)
        error = await add_learner(broker, node_id, *address)
        if error.failed:
            return error
    wanted = controller.quorum().committed
    while controller.leads and controller.quorum().ends.get(node_id, -1) < wanted:
        if broker.loop.time() > deadline:
            text = f"node {node_id} has not caught up yet: is it running? Try again"
            return Error(ErrorCode.REQUEST_TIMED_OUT, text)
        await asyncio.sleep(RETRY_S)
    left_s = max(RETRY_S, deadline - broker.loop.time())
    return await _change(broker, ConfChangeType.ADD_VOTER, node_id, left_s)


async def remove_voter(broker: Broker, node_id: int) -> Error:
    """Neither a vote nor the log for a node; refused where those who stay could not decide."""
    quorum, image = broker.controller.quorum(), broker.controller.image
    if node_id not in (*quorum.voters, *quorum.learners):
        return Error(ErrorCode.VOTER_NOT_FOUND, f"node {node_id} is no member")
    stay = [one for one in quorum.voters if one != node_id]
    live = [one for one in stay if image.is_live(one)]
    if len(live) <= len(stay) // 2:
        text = f"only {live} of the voters {stay} that would stay are alive: no majority"
        return Error(ErrorCode.INVALID_REQUEST, text)
    return await _change(broker, ConfChangeType.REMOVE, node_id, CHANGE_TIMEOUT_S)


async def transfer(broker: Broker, target: int) -> Error:
    """Lets another voter lead; the answer comes when it does."""
    controller = broker.controller
    if controller.leader_id == target:
        return OK
    if not controller.leads:
        return _NOT_CONTROLLER
    if target not in controller.quorum().voters:
        return Error(ErrorCode.VOTER_NOT_FOUND, f"node {target} is no voter")
    deadline = broker.loop.time() + TRANSFER_TIMEOUT_S
    await controller.hand_over(TRANSFER_TIMEOUT_S, target)
    while controller.leader_id != target:
        if broker.loop.time() > deadline:
            text = f"node {target} did not take over in time: is it running? Try again"
            return Error(ErrorCode.REQUEST_TIMED_OUT, text)
        await asyncio.sleep(RETRY_S)
    return OK


async def _change(broker: Broker, kind: ConfChangeType, node_id: int, timeout_s: float) -> Error:
    """One change, tried again while another is under way."""
    controller, loop = broker.controller, broker.loop
    deadline = loop.time() + timeout_s
    change = ConfChange((MemberChange(kind, node_id),))
    while controller.leader_id == broker.node_id:
        try:
            await controller.change_members(change, max(RETRY_S, deadline - loop.time()))
        except ProposalDropped as error:
            if error.reason is DropReason.CONF_CHANGE_INVALID or loop.time() > deadline:
                return Error(ErrorCode.INVALID_REQUEST, str(error))
        except ControllerUnavailableError as error:
            if error.unknown or loop.time() > deadline:
                return Error(ErrorCode.REQUEST_TIMED_OUT, str(error))
        else:
            return OK
        await asyncio.sleep(RETRY_S)
    return _NOT_CONTROLLER
