"""OffsetForLeaderEpoch (23), versions 2-4: where a leader epoch ended (KIP-101, 320)."""

from chronik.broker.broker import Broker
from chronik.broker.partition import OffsetError
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    broker: Broker, _call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """One answer per partition; epoch and offset are -1 where the epoch is unknown."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(broker, topic.topic, one) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(broker: Broker, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition, leader_epoch=-1, end_offset=-1)
    partition = broker.partitions.by_name(topic, wanted.partition)
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    try:
        partition.check_epoch(wanted.current_leader_epoch)
    except OffsetError as error:
        answer.error_code = error.code
        return answer
    if wanted.leader_epoch == partition.state.leader_epoch:
        answer.leader_epoch = wanted.leader_epoch
        answer.end_offset = partition.state.high_watermark
    else:
        log = partition.log
        found = log.end_offset_for_epoch(wanted.leader_epoch)
        if found[0] < 0 and 0 <= wanted.leader_epoch < partition.state.leader_epoch:
            # No record of that epoch came here: the present one began where the older ones end.
            found = log.epochs.latest, log.end_offset
        answer.leader_epoch, answer.end_offset = found
    return answer
