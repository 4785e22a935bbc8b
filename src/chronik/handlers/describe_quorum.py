"""DescribeQuorum (55), versions 0-2: the metadata log's leader and voters (KIP-595).

Only the leader knows how far the others are; any other node asks it.
"""

from chronik.broker.broker import Broker
from chronik.broker.peering import PeerUnavailableError
from chronik.handlers.call import Call
from chronik.model.errors import ErrorCode
from chronik.model.names import METADATA_TOPIC
from chronik.wire.apis import ApiKey
from chronik.wire.codec import WireError, decode, encode
from chronik.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)

VERSION = 2


async def handle(
    broker: Broker, call: Call, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """The one partition of the metadata log."""
    leader = broker.controller.leader_id
    if leader != broker.node_id and leader >= 0 and not call.peer.internal:
        try:
            body = encode(request, VERSION)
            answer = await broker.peers.call(leader, ApiKey.DESCRIBE_QUORUM, VERSION, [body], 5.0)
            return decode(DescribeQuorumResponse, VERSION, answer)
        except (PeerUnavailableError, WireError):
            pass
    if leader != broker.node_id:
        return DescribeQuorumResponse(
            error_code=ErrorCode.NOT_CONTROLLER, error_message="no controller answers at the moment"
        )
    return DescribeQuorumResponse(
        topics=[ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[_partition(broker)])],
        nodes=[
            Node(
                node_id=one.id,
                listeners=[
                    Listener(name=e.listener, host=e.host, port=e.port) for e in one.endpoints
                ],
            )
            for one in broker.controller.image.brokers.values()
        ],
    )


def _partition(broker: Broker) -> ResponsePartitionData:
    quorum = broker.controller.quorum()
    now_ms = broker.clock.now_ms()

    def replica(node_id: int) -> ReplicaState:
        return ReplicaState(
            replica_id=node_id,
            log_end_offset=quorum.ends.get(node_id, -1),
            last_fetch_timestamp=now_ms if node_id == broker.node_id else -1,
            last_caught_up_timestamp=now_ms if node_id == broker.node_id else -1,
        )

    return ResponsePartitionData(
        leader_id=broker.node_id,
        leader_epoch=broker.controller.term,
        high_watermark=quorum.committed,
        current_voters=[replica(one) for one in quorum.voters],
        observers=[replica(one) for one in quorum.learners],
    )
