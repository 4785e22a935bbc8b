"""AlterConfigs (33), versions 0-2: the older form; what is not named goes back to its default."""

from chronik.broker.broker import Broker
from chronik.cluster.commands import AlterConfigs, ResourceConfigs
from chronik.handlers.call import Call
from chronik.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(broker: Broker, _call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Answers when the change is in the metadata log and in effect here."""
    resources = tuple(
        ResourceConfigs(
            one.resource_type,
            one.resource_name,
            tuple((config.name, config.value) for config in one.configs),
        )
        for one in request.resources
    )
    results = await broker.controller.submit(AlterConfigs(resources, request.validate_only))
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=result.error.code,
                error_message=result.error.message,
                resource_type=result.resource_type,
                resource_name=result.name,
            )
            for result in results
        ]
    )
