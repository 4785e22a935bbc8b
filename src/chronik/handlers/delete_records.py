"""DeleteRecords (21), versions 0-2: moves a partition's log start; -1 means up to the watermark.

The new start is on the disk of every replica in sync before it is answered, so nothing brings the
records back (KIP-107).
"""

from chronik.broker.broker import Broker
from chronik.broker.partition import Partition
from chronik.broker.waiters import until
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


async def handle(
    broker: Broker, _call: Call, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """One answer per partition, with its new log start."""
    timeout_s = max(0, request.timeout_ms) / 1000
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    await _delete(broker, topic.name, one, timeout_s) for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _delete(
    broker: Broker, topic: str, wanted: DeleteRecordsPartition, timeout_s: float
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
    partition = broker.partitions.by_name(topic, wanted.partition_index)
    if partition is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result
    if not partition.state.is_leader:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return result
    if not partition.config.deleted:
        result.error_code = ErrorCode.POLICY_VIOLATION  # as Kafka on a purely compacted topic
        return result
    state = partition.state
    offset = state.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= state.high_watermark:
        result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return result
    try:
        await broker.partitions.advance_start(partition, offset)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    if partition.gone:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result
    result.error_code = await _replicated(partition, offset, timeout_s)
    if result.error_code == ErrorCode.NONE:
        result.low_watermark = state.log_start
    return result


async def _replicated(partition: Partition, offset: int, timeout_s: float) -> ErrorCode:
    if partition.state.replicated_start() >= offset:
        return ErrorCode.NONE
    partition.wake_fetches()
    return await until(partition.start_waiters, offset, timeout_s)
