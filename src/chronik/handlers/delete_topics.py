"""DeleteTopics (20), versions 1-6: by name, or by id since version 6 (KIP-516)."""

from chronik.broker.broker import Broker
from chronik.cluster.commands import DeleteTopics, TopicRef
from chronik.handlers.call import Call
from chronik.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)


async def handle(broker: Broker, _call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Answers when the deletion is in the metadata log; the bytes go right after."""
    references = tuple(TopicRef(topic.name, topic.topic_id) for topic in request.topics)
    results = await broker.controller.submit(DeleteTopics(references))
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=result.name,
                topic_id=result.topic_id,
                error_code=result.error.code,
                error_message=result.error.message,
            )
            for result in results
        ]
    )
