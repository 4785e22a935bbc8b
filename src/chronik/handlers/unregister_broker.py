"""UnregisterBroker (64), version 0: forgets a broker that will not come back (KIP-631)."""

from chronik.broker.broker import Broker
from chronik.cluster.commands import UnregisterBroker
from chronik.handlers.call import Call
from chronik.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


async def handle(
    broker: Broker, _call: Call, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Answers when the metadata no longer has it."""
    error = await broker.controller.submit(UnregisterBroker(request.broker_id))
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
