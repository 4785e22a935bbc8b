"""Any node serves any client: what belongs to another leader is asked of that leader (counted).

A forwarded request is never forwarded again: where the metadata of two nodes differ for a moment,
the client is told NOT_LEADER_OR_FOLLOWER and asks anew.
"""

from collections.abc import Callable

from chronik.broker.evidence import trace_forwarded
from chronik.broker.metrics import Metrics
from chronik.broker.peering import Peers, PeerUnavailableError
from chronik.trace.tracer import Tracer
from chronik.wire.apis import ApiKey
from chronik.wire.codec import WireError, decode, encode
from chronik.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from chronik.wire.messages.produce import ProduceRequest, ProduceResponse

PRODUCE_VERSION = 13
LIST_OFFSETS_VERSION = 11
MARGIN_S = 1.0
"""How much longer than the request's own time the leader has for its answer."""


class Forwarding:
    """Asks other nodes on behalf of a client."""

    def __init__(
        self,
        peers: Peers,
        metrics: Metrics,
        tracer: Tracer,
        name_of: Callable[[str | None, bytes | None], str | None],
    ) -> None:
        self._peers = peers
        self._metrics = metrics
        self._tracer = tracer
        self._name_of = name_of

    async def produce(
        self, leader: int, request: ProduceRequest, client_id: str | None
    ) -> ProduceResponse | None:
        """The leader's answer; None where there is none, and nobody knows what became of it."""
        self._metrics.count_forwarded("Produce", client_id)
        if self._tracer.on:
            self._trace_produce(leader, request, client_id)
        timeout_s = request.timeout_ms / 1000 + MARGIN_S
        try:
            body = encode(request, PRODUCE_VERSION)
            answer = await self._peers.call(
                leader, ApiKey.PRODUCE, PRODUCE_VERSION, [body], timeout_s
            )
            return decode(ProduceResponse, PRODUCE_VERSION, answer)
        except (PeerUnavailableError, WireError):
            return None

    async def list_offsets(
        self, leader: int, request: ListOffsetsRequest, client_id: str | None
    ) -> ListOffsetsResponse | None:
        """The leader's answer, or None."""
        self._metrics.count_forwarded("ListOffsets", client_id)
        for topic in request.topics:
            for one in topic.partitions:
                trace_forwarded(self._tracer, topic.name, one.partition_index, leader, 0, client_id)
        try:
            body = encode(request, LIST_OFFSETS_VERSION)
            answer = await self._peers.call(
                leader, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, [body], 5.0
            )
            return decode(ListOffsetsResponse, LIST_OFFSETS_VERSION, answer)
        except (PeerUnavailableError, WireError):
            return None

    def _trace_produce(self, leader: int, request: ProduceRequest, client_id: str | None) -> None:
        for topic in request.topic_data:
            name = self._name_of(None, topic.topic_id)
            for one in topic.partition_data:
                size = len(one.records or b"")
                trace_forwarded(self._tracer, name, one.index, leader, size, client_id)
