"""DescribeConfigs (32), versions 1-4: what is set, where, and what it means (KIP-226, KIP-569)."""

from chronik.broker.broker import Broker
from chronik.cluster.image import ResourceType
from chronik.handlers.call import Call
from chronik.model.broker_configs import describe_broker, describe_cluster_default
from chronik.model.configs import ConfigEntry
from chronik.model.errors import ErrorCode
from chronik.model.names import topic_name_error
from chronik.model.topic_configs import describe_topic
from chronik.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(broker: Broker, _call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """One answer per resource."""
    return DescribeConfigsResponse(
        results=[_result(broker, request, resource) for resource in request.resources]
    )


def _result(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    entries, code, message = _entries(broker, resource)
    result.error_code, result.error_message = code, message
    result.configs = [_entry(request, entry) for entry in entries]
    return result


def _entries(
    broker: Broker, resource: DescribeConfigsResource
) -> tuple[list[ConfigEntry], ErrorCode, str]:
    image, name = broker.controller.image, resource.resource_name
    # As in Kafka: no keys named are all keys, one named twice is described once.
    keys = dict.fromkeys(resource.configuration_keys or ()) or None
    if resource.resource_type == ResourceType.TOPIC:
        problem = topic_name_error(name)
        if problem is not None:
            return [], ErrorCode.INVALID_TOPIC_EXCEPTION, problem
        if name not in image.topics:
            return [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
        layers = broker.layers()
        return describe_topic(image.topic_overrides(name), layers, keys), ErrorCode.NONE, ""
    if resource.resource_type == ResourceType.BROKER:
        if name == "":
            default = image.config(ResourceType.BROKER, "")
            return describe_cluster_default(default, keys), ErrorCode.NONE, ""
        if name == str(broker.node_id):
            return describe_broker(broker.layers(), keys), ErrorCode.NONE, ""
        return [], ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not {name!r}"
    return [], ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no configs"


def _entry(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source)
            for one in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
