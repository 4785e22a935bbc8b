"""ElectLeaders (43), versions 0-2: preferred or unclean elections on demand (KIP-183, KIP-460)."""

from chronik.broker.broker import Broker
from chronik.cluster.commands import ElectLeaders
from chronik.handlers.call import Call
from chronik.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


async def handle(broker: Broker, _call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """No topics named means all of them; then only what changed or failed is answered."""
    partitions = None
    if request.topic_partitions is not None:
        partitions = tuple(
            (topic.topic, index) for topic in request.topic_partitions for index in topic.partitions
        )
    results: dict[str, list[PartitionResult]] = {}
    for one in await broker.controller.submit(ElectLeaders(request.election_type, partitions)):
        results.setdefault(one.topic, []).append(
            PartitionResult(
                partition_id=one.partition,
                error_code=one.error.code,
                error_message=one.error.message,
            )
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=many)
            for topic, many in results.items()
        ]
    )
