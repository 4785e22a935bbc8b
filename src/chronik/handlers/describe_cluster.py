"""DescribeCluster (60), versions 0-2: the cluster's id, controller and brokers (KIP-700)."""

from chronik.broker.broker import Broker
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.model.operations import NOT_ASKED, ON_CLUSTER
from chronik.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


def handle(broker: Broker, _call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Fenced brokers only where they are asked for (KIP-1073, v2)."""
    if request.endpoint_type == CONTROLLERS:
        return _refused(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "this listener serves brokers; controllers have none of their own",
        )
    if request.endpoint_type != BROKERS:
        return _refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"there is no endpoint type {request.endpoint_type}: ask for brokers ({BROKERS})",
        )
    image = broker.controller.image
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=image.cluster_id,
        cluster_authorized_operations=(
            ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED
        ),
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


def _refused(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message, endpoint_type=BROKERS)
