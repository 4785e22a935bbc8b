"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append, subtract (KIP-339)."""

from chronik.broker.broker import Broker
from chronik.cluster.commands import ConfigOp, IncrementalAlterConfigs, ResourceOps
from chronik.handlers.call import Call
from chronik.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    broker: Broker, _call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Answers when the change is in the metadata log and in effect here."""
    resources = tuple(
        ResourceOps(
            one.resource_type,
            one.resource_name,
            tuple(ConfigOp(c.name, c.config_operation, c.value) for c in one.configs),
        )
        for one in request.resources
    )
    command = IncrementalAlterConfigs(resources, request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=result.error.code,
                error_message=result.error.message,
                resource_type=result.resource_type,
                resource_name=result.name,
            )
            for result in await broker.controller.submit(command)
        ]
    )
