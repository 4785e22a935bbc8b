"""OffsetDelete (47), version 0: removes positions in topics nobody in the group reads (KIP-496)."""

from collections.abc import Iterator

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.cluster.image import ClusterImage
from chronik.groups import commands, responses
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(broker: Broker, _call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """One answer per partition, or one for the group."""
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    image = broker.controller.image
    topics = tuple((topic.name, _existing(image, topic)) for topic in request.topics)
    command = commands.OffsetDelete(request.group_id, topics)
    try:
        answer = await broker.coordinators.submit(request.group_id, command)
    except CoordinatorError as error:
        return OffsetDeleteResponse(error_code=error.code)
    assert isinstance(answer, responses.OffsetDeleteResponse)
    if answer.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=answer.error)
    errors = iter([one.error for one in answer.partitions])
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name, partitions=list(_answers(image, topic, errors))
            )
            for topic in request.topics
        ]
    )


def _existing(image: ClusterImage, topic: OffsetDeleteRequestTopic) -> tuple[int, ...]:
    indexes = (one.partition_index for one in topic.partitions)
    return tuple(index for index in indexes if image.partition(topic.name, index) is not None)


def _answers(
    image: ClusterImage, topic: OffsetDeleteRequestTopic, errors: Iterator[ErrorCode]
) -> Iterator[OffsetDeleteResponsePartition]:
    for one in topic.partitions:
        exists = image.partition(topic.name, one.partition_index) is not None
        code = next(errors) if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=code)
