"""FindCoordinator (10), versions 0-6: which node coordinates a group.

KIP-699 (several keys, v4). Not done: transactions (key type 1) and share groups (2, KIP-932).
"""

from chronik.broker.broker import Broker
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP = 0
TRANSACTION = 1
NO_TRANSACTIONS = "this broker serves no transactions: unset transactional.id"
_FIRST_VERSION_WITH_SEVERAL_KEYS = 4


async def handle(
    broker: Broker, call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """One answer per key."""
    if request.key_type == GROUP:
        message = _found(call.api_version)
        found = [await _group(broker, key, message) for key in request.coordinator_keys]
    elif request.key_type == TRANSACTION:
        code = _no_transactions(call.api_version)
        found = [_nowhere(key, code, NO_TRANSACTIONS) for key in request.coordinator_keys]
    else:
        message = f"key type {request.key_type} has no coordinator here"
        found = [
            _nowhere(key, ErrorCode.INVALID_REQUEST, message) for key in request.coordinator_keys
        ]
    return FindCoordinatorResponse(coordinators=found)


async def _group(broker: Broker, group_id: str, message: str) -> Coordinator:
    code, (node_id, host, port) = await broker.coordinators.find(group_id, broker.listener_name)
    if code is not ErrorCode.NONE:
        return _nowhere(group_id, code, code.name)
    return Coordinator(key=group_id, node_id=node_id, host=host, port=port, error_message=message)


def _nowhere(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
    )


def _found(version: int) -> str:
    """Kafka's message where all is well."""
    return "NONE" if version < _FIRST_VERSION_WITH_SEVERAL_KEYS else ""


def _no_transactions(version: int) -> ErrorCode:
    """The code that ends `init_transactions` at once and shows our message, if the client can.

    librdkafka (up to version 2) asks again for ever after any code but a failed authorization, and
    shows the message. Java (from version 4 on) would hide the message of that one, and stops with
    the message of any other that is not retriable.
    """
    if version < _FIRST_VERSION_WITH_SEVERAL_KEYS:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.UNSUPPORTED_VERSION
