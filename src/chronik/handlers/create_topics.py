"""CreateTopics (19), versions 2-7: new topics, each decided and answered for itself.

KIP-525 (configs in the answer, v5), KIP-516 (topic ids, v7). Not done: quotas on mutations.
"""

from chronik.broker.broker import Broker
from chronik.cluster.commands import CreatedTopic, CreateTopics, NewTopic
from chronik.handlers.call import Call
from chronik.model.topic_configs import describe_topic
from chronik.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


async def handle(broker: Broker, _call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Answers when the topics are in the metadata log, on disk."""
    topics = tuple(_new_topic(broker, topic) for topic in request.topics)
    command = CreateTopics(topics, broker.draw(1 << 16), request.validate_only)
    results = await broker.controller.submit(command)
    return CreateTopicsResponse(topics=[_result(broker, result) for result in results])


def _new_topic(broker: Broker, topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        topic_id=broker.new_id(),
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            (one.partition_index, tuple(one.broker_ids)) for one in topic.assignments
        ),
        configs=tuple((one.name, one.value) for one in topic.configs),
    )


def _result(broker: Broker, result: CreatedTopic) -> CreatableTopicResult:
    if result.error.failed:
        return CreatableTopicResult(
            name=result.name,
            error_code=result.error.code,
            error_message=result.error.message,
            num_partitions=-1,
            replication_factor=-1,
        )
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_message=None,
        num_partitions=result.partitions,
        replication_factor=result.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(result.configs, broker.layers())
        ],
    )
