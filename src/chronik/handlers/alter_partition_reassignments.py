"""AlterPartitionReassignments (45), versions 0-1: moves replicas, or cancels a move (KIP-455)."""

from chronik.broker.broker import Broker
from chronik.cluster.commands import AlterReassignments, Reassignment
from chronik.handlers.call import Call
from chronik.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    broker: Broker, _call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Answers when the move has begun; it ends when the new replicas are in sync."""
    wanted = tuple(
        Reassignment(
            topic.name,
            one.partition_index,
            tuple(one.replicas) if one.replicas is not None else None,
        )
        for topic in request.topics
        for one in topic.partitions
    )
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for result in await broker.controller.submit(AlterReassignments(wanted)):
        topics.setdefault(result.topic, []).append(
            ReassignablePartitionResponse(
                partition_index=result.partition,
                error_code=result.error.code,
                error_message=result.error.message,
            )
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(name=name, partitions=many) for name, many in topics.items()
        ],
    )
