"""ListOffsets (2), versions 1-11: where a partition starts, ends, or had a certain time.

Special timestamps: -1 latest (the high watermark), -2 earliest, -3 the record with the greatest
timestamp (KIP-734, v7), -4 earliest local (KIP-405, v8), -5 latest tiered (v9, none here).
"""

from chronik.broker.broker import Broker
from chronik.broker.partition import OffsetError, Partition
from chronik.broker.waiters import until
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)

SETTLE_TIMEOUT_S = 1.0
CONSUMER = -1
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NEVER = 1 << 15
_NOTHING = (-1, -1, -1)


async def handle(broker: Broker, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """One answer per partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    await _answer(broker, call, topic.name, wanted)
                    if request.replica_id == CONSUMER or wanted.timestamp != LATEST
                    else _log_end(broker, topic.name, wanted)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _log_end(
    broker: Broker, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    """What tools ask the leader for (replica id -2): its log's end, committed or not."""
    response = ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=-1, offset=-1, leader_epoch=-1
    )
    partition = broker.partitions.by_name(topic, wanted.partition_index)
    if partition is None or not partition.state.is_leader:
        response.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        response.offset = partition.state.log_end
        response.leader_epoch = partition.state.leader_epoch
    return response


async def _answer(
    broker: Broker, call: Call, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    response = ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=-1, offset=-1, leader_epoch=-1
    )
    version = call.api_version
    if wanted.timestamp < 0 and version < _FIRST_VERSION.get(wanted.timestamp, _NEVER):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return response
    partition = broker.partitions.by_name(topic, wanted.partition_index)
    if partition is None or not partition.state.is_leader:
        return await _ask_leader(broker, call, topic, wanted)
    try:
        partition.check_epoch(wanted.current_leader_epoch)
    except OffsetError as error:
        response.error_code = error.code
        return response
    if wanted.timestamp in {LATEST, MAX_TIMESTAMP} or wanted.timestamp >= 0:
        code = await _settled(partition)
        if code is not ErrorCode.NONE:
            response.error_code = code if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
            return response
    found = await _find(broker, partition, wanted.timestamp)
    response.timestamp, response.offset, response.leader_epoch = found
    return response


async def _settled(partition: Partition) -> ErrorCode:
    """Waits until a new leader knows that all it inherited is committed (KIP-207).

    Before that its watermark may lie below what its predecessor has told clients.
    """
    state = partition.state
    if state.high_watermark >= state.epoch_start:
        return ErrorCode.NONE
    await until(partition.committed_waiters, state.epoch_start, SETTLE_TIMEOUT_S)
    if not state.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if state.high_watermark < state.epoch_start:
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return ErrorCode.NONE


async def _ask_leader(
    broker: Broker, call: Call, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    """Another node leads the partition, or nobody knows it."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    leader = broker.partitions.leader_of(topic, None, wanted.partition_index)
    if leader >= 0 and leader != broker.node_id and not call.peer.internal:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        answer = await broker.forwarding.list_offsets(leader, request, call.client_id)
        if answer is not None:
            return answer.topics[0].partitions[0]
        broker.metrics.count_not_leader("ListOffsets", call.client_id)
    elif leader >= 0 or broker.partitions.by_name(topic, wanted.partition_index) is not None:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.metrics.count_not_leader("ListOffsets", call.client_id)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=code,
        timestamp=-1,
        offset=-1,
        leader_epoch=-1,
    )


async def _find(broker: Broker, partition: Partition, timestamp: int) -> tuple[int, int, int]:
    state, log = partition.state, partition.log
    if timestamp == LATEST:
        return -1, state.high_watermark, state.leader_epoch
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        empty = state.log_start == state.log_end
        epoch = state.leader_epoch if empty else log.epochs.epoch_at(state.log_start)
        return -1, state.log_start, epoch
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        return _NOTHING
    if timestamp == MAX_TIMESTAMP:
        found = await broker.disk.run(log.max_timestamp)
    else:
        found = await broker.disk.run(lambda: log.offset_for_timestamp(timestamp))
    if found is None or found.offset >= state.high_watermark:
        return _NOTHING
    return found
