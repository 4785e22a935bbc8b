"""InitProducerId (22), versions 0-5: an id for an idempotent producer (KIP-98, KIP-360).

Not done: transactional producers, who are told so.
"""

from chronik.broker.broker import Broker
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


async def handle(
    broker: Broker, _call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A new id with epoch 0; ids never repeat, whatever restarts in between."""
    if request.transactional_id == "" or (request.producer_id == -1) != (
        request.producer_epoch == -1
    ):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    code, producer_id = await broker.producer_ids.next()
    if code is not ErrorCode.NONE:
        return _refused(code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
