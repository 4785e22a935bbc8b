"""ListConfigResources (74), versions 0-1: what has configuration of its own (KIP-1142)."""

from chronik.broker.broker import Broker
from chronik.cluster.image import ResourceType
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_KNOWN = {
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
}


def handle(
    broker: Broker, _call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Topics and brokers; of client metrics and groups there are none."""
    wanted = set(request.resource_types) or {int(one) for one in _KNOWN}
    if not wanted <= {int(one) for one in _KNOWN}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = broker.controller.image
    names: list[tuple[ResourceType, str]] = []
    names += [(ResourceType.TOPIC, name) for name in image.topics]
    for kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        names += [(kind, str(one)) for one in image.brokers]
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in names
            if kind in wanted
        ]
    )
