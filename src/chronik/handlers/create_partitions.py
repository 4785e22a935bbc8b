"""CreatePartitions (37), versions 0-3: more partitions for a topic (KIP-195)."""

from chronik.broker.broker import Broker
from chronik.cluster.commands import CreatePartitions, NewPartitions
from chronik.handlers.call import Call
from chronik.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(
    broker: Broker, _call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Answers when the new partitions are in the metadata log."""
    command = CreatePartitions(
        tuple(_new_partitions(topic) for topic in request.topics),
        broker.draw(1 << 16),
        request.validate_only,
    )
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=result.name,
                error_code=result.error.code,
                error_message=result.error.message,
            )
            for result in await broker.controller.submit(command)
        ]
    )


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(one.broker_ids) for one in topic.assignments)
    return NewPartitions(topic.name, topic.count, assignments)
