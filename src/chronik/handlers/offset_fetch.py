"""OffsetFetch (9), versions 1-10: the positions that groups have stored, -1 where there is none.

KIP-211 (all topics, v2), KIP-709 (several groups, v8), KIP-516 (topic ids, v10). Not done: member
epochs (KIP-848, v9), which classic groups ignore; `require_stable` (KIP-447) always holds here.
"""

from itertools import groupby

from chronik.broker.broker import Broker
from chronik.broker.coordinators import CoordinatorError
from chronik.groups import commands, responses
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from chronik.wire.primitives import ZERO_UUID

_FIRST_VERSION_WITH_GROUP_ERROR = 2
_FIRST_VERSION_WITH_TOPIC_IDS = 10


async def handle(broker: Broker, call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """One answer per group."""
    by_id = call.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    return OffsetFetchResponse(
        groups=[
            await _group(broker, call.api_version, group, _Asked(broker, group, by_id=by_id))
            for group in request.groups
        ]
    )


class _Asked:
    """What a group's request names: topics that are known, and ids that nobody has."""

    def __init__(self, broker: Broker, group: OffsetFetchRequestGroup, *, by_id: bool) -> None:
        self.image = broker.controller.image
        self.by_id = by_id
        self.unknown: list[OffsetFetchRequestTopics] = []
        self.topics: list[tuple[str, tuple[int, ...]]] | None = None
        if group.topics is not None:
            self.topics = []
            for topic in group.topics:
                self._add(topic)

    def _add(self, topic: OffsetFetchRequestTopics) -> None:
        assert self.topics is not None
        name = self.image.topic_names.get(topic.topic_id) if self.by_id else topic.name
        if name is None:
            self.unknown.append(topic)
        else:
            self.topics.append((name, tuple(topic.partition_indexes)))


async def _group(
    broker: Broker, version: int, group: OffsetFetchRequestGroup, asked: _Asked
) -> OffsetFetchResponseGroup:
    topics = None if asked.topics is None else tuple(asked.topics)
    try:
        answer = await broker.coordinators.submit(
            group.group_id, commands.OffsetFetch(group.group_id, topics)
        )
    except CoordinatorError as error:
        return _failed(group, error.code, version)
    assert isinstance(answer, responses.OffsetFetchResponse)
    if answer.error is not ErrorCode.NONE:
        return _failed(group, answer.error, version)
    found = _topics(answer, asked)
    found += [_refused(topic, ErrorCode.UNKNOWN_TOPIC_ID) for topic in asked.unknown]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=found)


def _topics(
    answer: responses.OffsetFetchResponse, asked: _Asked
) -> list[OffsetFetchResponseTopics]:
    """Offsets of a topic that is gone have no id, so clients that know only ids do not see them."""
    found = []
    for name, offsets in groupby(answer.partitions, key=lambda one: one.topic):
        topic = asked.image.topics.get(name)
        if topic is None and asked.by_id:
            continue
        found.append(
            OffsetFetchResponseTopics(
                name=name,
                topic_id=ZERO_UUID if topic is None else topic.id,
                partitions=[_partition(one) for one in offsets],
            )
        )
    return found


def _partition(one: responses.FetchedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=one.partition,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        error_code=one.error,
    )


def _failed(
    group: OffsetFetchRequestGroup, code: ErrorCode, version: int
) -> OffsetFetchResponseGroup:
    """The group's error; version 1 has no field for it, so there each partition carries it."""
    in_partitions = version < _FIRST_VERSION_WITH_GROUP_ERROR
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[_refused(one, code) for one in group.topics or ()] if in_partitions else [],
        error_code=code,
    )


def _refused(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, error_code=code
            )
            for index in topic.partition_indexes
        ],
    )
