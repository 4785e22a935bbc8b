"""EndQuorumEpoch (54), versions 0-1: another voter shall lead the metadata log (KIP-595).

Kafka's leaders send it when they resign. Here an operator sends it to any node: the present leader
brings the first preferred candidate up to date and hands over. A leader epoch that is not the
present one is refused, so that a late request ends nothing.
"""

from chronik.broker import membership
from chronik.broker.broker import Broker
from chronik.cluster.commands import Error
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.model.names import METADATA_TOPIC
from chronik.wire.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    ReplicaInfo,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

VERSION = 1


async def handle(
    broker: Broker, call: Call, request: EndQuorumEpochRequest
) -> EndQuorumEpochResponse:
    """Answers when the new leader leads."""
    named = [one for topic in request.topics for one in topic.partitions]
    is_metadata = [topic.topic_name for topic in request.topics] == [METADATA_TOPIC]
    if not is_metadata or [one.partition_index for one in named] != [0]:
        return EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not call.peer.internal:
        for one in named:  # version 0 has ids only; the leader is asked in version 1
            more = [ReplicaInfo(candidate_id=node) for node in one.preferred_successors]
            one.preferred_candidates += more
        answer = await membership.ask_leader(
            broker, request, EndQuorumEpochResponse, VERSION, 2 * membership.TRANSFER_TIMEOUT_S
        )
        if answer is not None:
            return answer
    error = await _hand_over(broker, named[0])
    partition = ResponsePartitionData(
        error_code=error.code,
        leader_id=broker.controller.leader_id,
        leader_epoch=broker.controller.term,
    )
    topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return EndQuorumEpochResponse(topics=[topic])


async def _hand_over(broker: Broker, wanted: RequestPartitionData) -> Error:
    candidates = [one.candidate_id for one in wanted.preferred_candidates]
    if not candidates:
        return Error(ErrorCode.INVALID_REQUEST, "name the node that shall lead")
    if wanted.leader_epoch not in {-1, broker.controller.term}:
        return Error(ErrorCode.FENCED_LEADER_EPOCH, "another epoch has begun")
    return await membership.transfer(broker, candidates[0])
