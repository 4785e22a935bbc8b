"""Metadata (3), versions 0-13: brokers, topics, leaders; creates missing topics where allowed.

KIP-430 (what the client may do, v8: all, there are no ACLs), KIP-516 (topic ids, v10-12). Unlike
Kafka the answer waits for an automatic creation, so that the client sees the new leader at once.
"""

from chronik.broker.broker import Broker
from chronik.cluster.commands import CreateTopics, NewTopic
from chronik.cluster.image import ClusterImage, PartitionState, Topic
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.model.names import is_internal, topic_name_error
from chronik.model.operations import NOT_ASKED, ON_CLUSTER, ON_TOPIC
from chronik.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from chronik.wire.primitives import ZERO_UUID

FIRST_VERSION_WITH_CREATION_FLAG = 4


async def handle(broker: Broker, call: Call, request: MetadataRequest) -> MetadataResponse:
    """All topics where none is named, else the named ones."""
    image = broker.controller.image
    created: dict[str, tuple[ErrorCode, str | None]] = {}
    if request.topics is not None:
        may_create = request.allow_auto_topic_creation or (
            call.api_version < FIRST_VERSION_WITH_CREATION_FLAG
        )
        missing = [
            one.name
            for one in request.topics
            if one.name and one.topic_id == ZERO_UUID and one.name not in image.topics
        ]
        if missing and may_create and broker.auto_create_topics:
            created = await _create(broker, missing)
            image = broker.controller.image
    if request.topics is None:
        topics = [_topic(image, topic) for topic in image.topics.values()]
    else:
        # As in Kafka, a topic asked for twice is answered once.
        wanted = {(asked.topic_id, asked.name): asked for asked in request.topics}
        topics = [_asked(image, asked, created) for asked in wanted.values()]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                topic.topic_authorized_operations = ON_TOPIC
    return MetadataResponse(
        brokers=_brokers(broker, image),
        cluster_id=image.cluster_id,
        controller_id=broker.controller.leader_id,
        topics=topics,
        cluster_authorized_operations=(
            ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


async def _create(broker: Broker, names: list[str]) -> dict[str, tuple[ErrorCode, str | None]]:
    valid = [name for name in dict.fromkeys(names) if topic_name_error(name) is None]
    topics = tuple(NewTopic(name, broker.new_id()) for name in valid)
    results = await broker.controller.submit(CreateTopics(topics, broker.draw(1 << 16)))
    return {
        result.name: (result.error.code, result.error.message)
        for result in results
        if result.error.failed and result.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    }


def _brokers(broker: Broker, image: ClusterImage) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(
            node_id=one.id, host=endpoint.host, port=endpoint.port, rack=one.rack
        )
        for one in image.brokers.values()
        if not one.fenced and (endpoint := one.endpoint(broker.listener_name)) is not None
    ]


def _asked(
    image: ClusterImage,
    asked: MetadataRequestTopic,
    failed: dict[str, tuple[ErrorCode, str | None]],
) -> MetadataResponseTopic:
    if asked.topic_id != ZERO_UUID:
        topic = image.topic_by_id(asked.topic_id)
        if topic is None:
            return _missing(None, asked.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        return _topic(image, topic)
    name = asked.name or ""
    found = image.topics.get(name)
    if found is not None:
        return _topic(image, found)
    if topic_name_error(name) is not None:
        return _missing(name, ZERO_UUID, ErrorCode.INVALID_TOPIC_EXCEPTION)
    code, _ = failed.get(name, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
    return _missing(name, ZERO_UUID, code)


def _missing(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id)


def _topic(image: ClusterImage, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[
            _partition(image, index, state) for index, state in enumerate(topic.partitions)
        ],
    )


def _partition(image: ClusterImage, index: int, state: PartitionState) -> MetadataResponsePartition:
    code = ErrorCode.NONE if state.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[one for one in state.replicas if not image.is_live(one)],
    )
