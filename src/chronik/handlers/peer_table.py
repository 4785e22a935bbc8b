"""What nodes serve each other, on a listener of its own: replication, Raft, the controller."""

from dataclasses import replace

from chronik.broker import membership
from chronik.broker.broker import Broker
from chronik.broker.peering import PeerApi
from chronik.handlers import fetch, replica_fetch
from chronik.handlers.api import Api
from chronik.handlers.call import Call
from chronik.handlers.table import TABLE
from chronik.wire.apis import ApiKey
from chronik.wire.fetch import TOPIC_ID, parse_fetch
from chronik.wire.replica_fetch import FIRST_VERSION as NAMES_FOLLOWER_IN_TAG
from chronik.wire.replica_serve import read_follower_request


def serve_fetch(broker: Broker, call: Call) -> None:
    """Followers replicate; what names no follower is a consumer's."""
    version = call.api_version
    if version >= NAMES_FOLLOWER_IN_TAG:
        request = read_follower_request(call.frame, call.body)
        if request is not None and request[0] >= 0:
            replica_fetch.answer(broker, call, request)
            return
    request = parse_fetch(version, memoryview(call.frame), call.body)
    if request.replica_id >= 0 and version >= TOPIC_ID:
        replica_fetch.answer(broker, call, request)
    else:
        fetch.answer(broker, call, request)


def serve_raft(broker: Broker, call: Call) -> None:
    """Raft answers with messages of its own; the empty answer tells that this link lives."""
    broker.controller.serve_message(memoryview(call.frame)[call.body :])
    call.reply(())


def serve_nudge(broker: Broker, call: Call) -> None:
    """A follower wants the answer of its waiting fetch now."""
    broker.replica_sessions.nudge(int.from_bytes(call.frame[call.body : call.body + 4], "big"))
    call.no_reply()


def serve_hello(broker: Broker, call: Call) -> None:
    """A node that has lost its disk, or has never had one."""
    call.reply((broker.controller.serve_hello(memoryview(call.frame)[call.body :]),))


async def answer_command(broker: Broker, call: Call) -> None:
    """A command for the controller, from a node that does not lead."""
    call.reply((await broker.controller.serve_command(memoryview(call.frame)[call.body :]),))


async def answer_join(broker: Broker, call: Call) -> None:
    """A node that is new to the cluster."""
    call.reply((await membership.serve_join(broker, memoryview(call.frame)[call.body :]),))


PEER_TABLE: dict[int, Api] = {
    ApiKey.PRODUCE: TABLE[ApiKey.PRODUCE],
    ApiKey.FETCH: replace(TABLE[ApiKey.FETCH], fast=serve_fetch, patient=False),
    ApiKey.LIST_OFFSETS: TABLE[ApiKey.LIST_OFFSETS],
    ApiKey.DESCRIBE_QUORUM: TABLE[ApiKey.DESCRIBE_QUORUM],
    ApiKey.END_QUORUM_EPOCH: TABLE[ApiKey.END_QUORUM_EPOCH],
    ApiKey.ADD_RAFT_VOTER: TABLE[ApiKey.ADD_RAFT_VOTER],
    ApiKey.REMOVE_RAFT_VOTER: TABLE[ApiKey.REMOVE_RAFT_VOTER],
    PeerApi.RAFT: Api(PeerApi.RAFT, fast=serve_raft),
    PeerApi.HELLO: Api(PeerApi.HELLO, fast=serve_hello),
    PeerApi.NUDGE: Api(PeerApi.NUDGE, fast=serve_nudge),
    PeerApi.CONTROLLER_COMMAND: Api(PeerApi.CONTROLLER_COMMAND, later=answer_command),
    PeerApi.JOIN: Api(PeerApi.JOIN, later=answer_join),
}
