"""OffsetCommit (8), versions 2-10: a group's positions are stored.

KIP-211 (retention is the broker's, v5), KIP-320 (leader epochs, v6), KIP-345 (static members, v7),
KIP-848 (v9), KIP-516 (topic ids, v10). An empty group id is allowed, as in Kafka.
"""

from collections.abc import Coroutine, Iterator
from typing import Any

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.cluster.image import ClusterImage, Topic
from chronik.groups import commands, responses
from chronik.handlers.api import Pending
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9
_FIRST_VERSION_WITH_TOPIC_IDS = 10

_Topics = list[tuple[OffsetCommitRequestTopic, Topic | None]]
"""What is asked, and what there is of it."""


def handle(
    broker: Broker, call: Call, request: OffsetCommitRequest
) -> OffsetCommitResponse | Pending | Coroutine[Any, Any, OffsetCommitResponse]:
    """Stores what belongs to partitions that exist; every partition is answered (FM 10)."""
    image = broker.controller.image
    topics = [(topic, _topic(image, call.api_version, topic)) for topic in request.topics]
    offsets = tuple(
        offset for asked, topic in topics if topic is not None for offset in _offsets(asked, topic)
    )
    if not offsets:
        return _response(call, topics, [])
    command = commands.OffsetCommit(
        group_id=request.group_id,
        offsets=offsets,
        member_id=request.member_id,
        generation_id=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
    )
    # Consumers commit often: where the group is loaded it takes no task.
    stored = broker.coordinators.submit_now(command)
    if stored is None:
        return _later(broker, call, topics, command)
    return Pending(stored, lambda answer: _response(call, topics, _codes(call, answer)))


async def _later(
    broker: Broker, call: Call, topics: _Topics, command: commands.OffsetCommit
) -> OffsetCommitResponse:
    try:
        answer = await broker.coordinators.submit(command.group_id, command)
    except CoordinatorError as error:
        return _response(call, topics, [error.code] * len(command.offsets))
    return _response(call, topics, _codes(call, answer))


def _response(call: Call, topics: _Topics, codes: list[ErrorCode]) -> OffsetCommitResponse:
    """The codes are those of the offsets that could be stored, in their order."""
    by_id = call.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    errors = iter(codes)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=asked.name,
                topic_id=asked.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in _answers(asked, topic, unknown, errors)
                ],
            )
            for asked, topic in topics
        ]
    )


def _topic(image: ClusterImage, version: int, asked: OffsetCommitRequestTopic) -> Topic | None:
    if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        return image.topic_by_id(asked.topic_id)
    return image.topics.get(asked.name)


def _offsets(asked: OffsetCommitRequestTopic, topic: Topic) -> Iterator[commands.OffsetToCommit]:
    for one in asked.partitions:
        if 0 <= one.partition_index < len(topic.partitions):
            yield commands.OffsetToCommit(
                topic=topic.name,
                partition=one.partition_index,
                offset=one.committed_offset,
                leader_epoch=one.committed_leader_epoch,
                metadata=one.committed_metadata,
                topic_id=topic.id,
            )


def _codes(call: Call, answer: responses.Response) -> list[ErrorCode]:
    assert isinstance(answer, responses.OffsetCommitResponse)
    return [_known(one.error, call.api_version) for one in answer.partitions]


def _known(code: ErrorCode, version: int) -> ErrorCode:
    """Old clients know no unknown groups, only generations that are over."""
    if version < _FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND and code is ErrorCode.GROUP_ID_NOT_FOUND:
        return ErrorCode.ILLEGAL_GENERATION
    return code


def _answers(
    asked: OffsetCommitRequestTopic,
    topic: Topic | None,
    unknown: ErrorCode,
    errors: Iterator[ErrorCode],
) -> Iterator[tuple[int, ErrorCode]]:
    for one in asked.partitions:
        if topic is None:
            yield one.partition_index, unknown
        elif 0 <= one.partition_index < len(topic.partitions):
            yield one.partition_index, next(errors)
        else:
            yield one.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
