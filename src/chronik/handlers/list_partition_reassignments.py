"""ListPartitionReassignments (46), version 0: the moves of replicas that go on (KIP-455)."""

from chronik.broker.broker import Broker
from chronik.handlers.call import Call
from chronik.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    broker: Broker, _call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """All of them, or those of the partitions named."""
    named = None
    if request.topics is not None:
        named = {(one.name, index) for one in request.topics for index in one.partition_indexes}
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for topic, index, state in broker.controller.image.partitions():
        if state.reassigning and (named is None or (topic.name, index) in named):
            topics.setdefault(topic.name, []).append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(state.replicas),
                    adding_replicas=list(state.adding),
                    removing_replicas=list(state.removing),
                )
            )
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(name=name, partitions=many) for name, many in topics.items()
        ]
    )
