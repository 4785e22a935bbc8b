"""How nodes find each other: by their settings, by registrations, and by asking to be let in."""

import asyncio
import logging

from chronik.broker.controller import Controller
from chronik.broker.membership import PEER_LISTENER
from chronik.broker.peering import PeerApi, Peers, PeerUnavailableError
from chronik.cluster.command_codec import decode_value, encode_value
from chronik.cluster.commands import Error
from chronik.cluster.image import ClusterImage

TIMEOUT_S = 10.0
EVERY_S = 0.5

log = logging.getLogger(__name__)


class Joining:
    """The addresses of the other nodes, and this node's wish to become one of them."""

    def __init__(
        self,
        node_id: int,
        configured: tuple[tuple[int, str, int], ...],
        controller: Controller,
        peers: Peers,
    ) -> None:
        self._node_id = node_id
        self._configured = {one: (host, port) for one, host, port in configured}
        self._controller = controller
        self._peers = peers

    def own_address(self, host: str, port: int) -> tuple[str, int]:
        """Where others reach this node: as the settings say, if it is among the peers."""
        return self._configured.get(self._node_id, (host, port))

    def learn(self, old: ClusterImage, new: ClusterImage) -> None:
        """Nodes that came later are where they registered; those in the settings are there."""
        if new.brokers is old.brokers:
            return
        for broker in new.brokers.values():
            before = old.brokers.get(broker.id)
            where = broker.endpoint(PEER_LISTENER)
            changed = before is None or before.endpoint(PEER_LISTENER) != where
            is_known = broker.id in self._configured or broker.id == self._node_id
            if changed and where is not None and not is_known:
                self._peers.set_address(broker.id, where.host, where.port)

    async def run(self, address: tuple[str, int]) -> None:
        """Asks one peer after the other to let this node in, until the cluster knows it."""
        body = encode_value((self._node_id, *address, False))
        others = [one for one in self._configured if one != self._node_id]
        while self._node_id not in self._controller.image.brokers:
            for peer in others:
                if await self._ask(peer, body):
                    break
            await asyncio.sleep(EVERY_S)

    async def _ask(self, peer: int, body: bytes) -> bool:
        try:
            answer = await self._peers.call(peer, PeerApi.JOIN, 0, [body], TIMEOUT_S)
        except PeerUnavailableError as unavailable:
            log.info("cannot ask node %d to join yet: %s", peer, unavailable)
            return False
        error: Error = decode_value(answer)
        if error.failed:
            log.warning("node %d does not let this node join: %s", peer, error.message)
        return not error.failed
