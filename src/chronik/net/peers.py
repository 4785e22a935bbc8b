"""The links to the other nodes, by node id; what one link does is in `peer_link.py`."""

import asyncio

from chronik.broker.peering import Answered, Message, PeerUnavailableError
from chronik.net.frames import FramePool
from chronik.net.peer_link import PeerLink
from chronik.wire.records import Buffer

_RECEIVE_BYTES = 256 * 1024


class PeerLinks:
    """The links of a node, by node id. Implements `broker.peering.Peers`."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._shared = memoryview(bytearray(_RECEIVE_BYTES))
        self._pool = FramePool()
        self._links: dict[int, PeerLink] = {}

    def set_address(self, node_id: int, host: str, port: int) -> None:
        """Learns, or learns anew, where a node listens for its peers."""
        former = self._links.get(node_id)
        if former is not None:
            former.close()
        self._links[node_id] = PeerLink((host, port), self._shared, self._pool, self._tasks)

    async def call(
        self, node_id: int, api_key: int, version: int, body: list[Buffer], timeout_s: float
    ) -> memoryview:
        """The answer of a node."""
        link = self._links.get(node_id)
        if link is None:
            raise PeerUnavailableError(f"the address of node {node_id} is unknown", sent=False)
        return await link.call(api_key, version, body, timeout_s)

    def request(
        self,
        node_id: int,
        api_key: int,
        version: int,
        body: list[Buffer],
        timeout_s: float,
        answered: Answered,
    ) -> None:
        """As `call`, without a task."""
        link = self._links.get(node_id)
        if link is None:
            answered(PeerUnavailableError(f"the address of node {node_id} is unknown", sent=False))
        else:
            link.request(api_key, version, body, timeout_s, answered)

    def post(self, message: Message) -> None:
        """Sends a message to its node."""
        link = self._links.get(message.node_id)
        if link is not None:
            link.post(message)

    def refuses(self, node_id: int) -> bool:
        """True where the last attempt to connect was refused."""
        link = self._links.get(node_id)
        return link is not None and link.is_refused

    def heard_of(self, node_id: int) -> None:
        """The node has just asked something: it can be asked, whatever came of the last attempt."""
        link = self._links.get(node_id)
        if link is not None:
            link.retry()

    def close(self) -> None:
        """Drops every connection."""
        for link in self._links.values():
            link.close()
