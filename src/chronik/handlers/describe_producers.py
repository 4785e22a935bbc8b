"""DescribeProducers (61), version 0: the producers that a partition remembers (KIP-664)."""

from chronik.broker.broker import Broker
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.model.names import topic_name_error
from chronik.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

NO_TRANSACTION = -1


def handle(
    broker: Broker, _call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """One answer per partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _answer(broker, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(broker: Broker, topic: str, index: int) -> PartitionResponse:
    partition = broker.partitions.by_name(topic, index)
    if partition is None:
        problem = topic_name_error(topic)
        if problem is not None:
            return _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        message = f"this node has no partition {index} of topic {topic!r}"
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp_ms,
                coordinator_epoch=-1,
                current_txn_start_offset=NO_TRANSACTION,
            )
            for entry in partition.state.producers
        ],
    )


def _refused(index: int, code: ErrorCode, message: str) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=code, error_message=message)
