"""Links of a node to nobody: a test overrides what it is about."""

from chronik.broker.peering import Answered, Message, PeerUnavailableError
from chronik.wire.records import Buffer


class NoPeers:
    """Nobody answers, and what is sent is gone. Implements `broker.peering.Peers`."""

    async def call(
        self, node_id: int, api_key: int, version: int, body: list[Buffer], timeout_s: float
    ) -> memoryview:
        raise PeerUnavailableError("nobody is there", sent=False)

    def request(
        self,
        node_id: int,
        api_key: int,
        version: int,
        body: list[Buffer],
        timeout_s: float,
        answered: Answered,
    ) -> None:
        answered(PeerUnavailableError("nobody is there", sent=False))

    def post(self, message: Message) -> None:
        """It is lost."""

    def set_address(self, node_id: int, host: str, port: int) -> None:
        """Addresses do not matter here."""

    def heard_of(self, node_id: int) -> None:
        """It makes no difference."""

    def refuses(self, node_id: int) -> bool:
        return False
