"""DescribeTopicPartitions (75), version 0: topics page by page, with a cursor (KIP-966)."""

from chronik.broker.broker import Broker
from chronik.cluster.image import ClusterImage, PartitionState, Topic
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.model.limits import PARTITIONS_PER_ANSWER_MAX
from chronik.model.names import is_internal, topic_name_error
from chronik.model.operations import ON_TOPIC
from chronik.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)


def handle(
    broker: Broker, _call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics in order of name, from the cursor on, up to the limit of partitions."""
    image = broker.controller.image
    names = sorted({topic.name for topic in request.topics} or image.topics)
    first = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first = max(0, request.cursor.partition_index)
    left = max(1, min(request.response_partition_limit, PARTITIONS_PER_ANSWER_MAX))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if left == 0:
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        page = range(first, min(len(topic.partitions), first + left))
        response.topics.append(_topic(image, topic, page))
        left -= len(page)
        first = 0
        if page.stop < len(topic.partitions):
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=page.stop)
            break
    return response


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_error(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=ON_TOPIC,
    )


def _topic(image: ClusterImage, topic: Topic, page: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(image, index, topic.partitions[index]) for index in page],
        topic_authorized_operations=ON_TOPIC,
    )


def _partition(
    image: ClusterImage, index: int, state: PartitionState
) -> DescribeTopicPartitionsResponsePartition:
    code = ErrorCode.NONE if state.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
    return DescribeTopicPartitionsResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[one for one in state.replicas if not image.is_live(one)],
    )
