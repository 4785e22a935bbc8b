"""DescribeCluster (60), versions 0-2: the cluster's id, controller and brokers (KIP-700)."""

from chronik.broker.broker import Broker
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1


def handle(broker: Broker, _call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Fenced brokers only where they are asked for (KIP-1073, v2)."""
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this listener serves brokers; controllers have none of their own",
            endpoint_type=BROKERS,
        )
    image = broker.controller.image
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        controller_id=broker.controller.leader_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=one.id,
                host=endpoint.host,
                port=endpoint.port,
                rack=one.rack,
                is_fenced=one.fenced,
            )
            for one in image.brokers.values()
            if (not one.fenced or request.include_fenced_brokers)
            and (endpoint := one.endpoint(broker.listener_name)) is not None
        ],
    )
