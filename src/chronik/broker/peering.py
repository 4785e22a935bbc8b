"""What the parts of a node expect of the links to other nodes; `net/peers.py` has them."""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

from chronik.wire.records import Buffer


class PeerApi(IntEnum):
    """Requests between nodes that Kafka's protocol has no word for; only on the peer listener."""

    RAFT = 10_000
    CONTROLLER_COMMAND = 10_001
    NUDGE = 10_002
    """Asks for the answer of a waiting fetch at once."""
    JOIN = 10_003
    """A new node asks to get the metadata log."""
    HELLO = 10_004
    """A node with an empty disk asks whether anything was ever decided."""


class PeerUnavailableError(Exception):
    """No answer came. `sent`: the request may have been carried out all the same."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


Answered = Callable[[memoryview | PeerUnavailableError], None]
"""Called once on the event loop, with the body of the answer or with why there is none."""


class Message(NamedTuple):
    """Something for a node that has no answer and may be lost."""

    node_id: int
    api: PeerApi
    data: bytes


class Peers(Protocol):
    """The other nodes."""

    async def call(
        self, node_id: int, api_key: int, version: int, body: list[Buffer], timeout_s: float
    ) -> memoryview:
        """The body of a node's answer; PeerUnavailableError where there is none."""

    def request(
        self,
        node_id: int,
        api_key: int,
        version: int,
        body: list[Buffer],
        timeout_s: float,
        answered: Answered,
    ) -> None:
        """As `call`, without a task: for what is asked many times a second."""

    def post(self, message: Message) -> None:
        """Sends a message that has no answer and may be lost."""

    def set_address(self, node_id: int, host: str, port: int) -> None:
        """Learns, or learns anew, where a node listens for its peers."""

    def heard_of(self, node_id: int) -> None:
        """The node has asked something, so it can be asked: an answer must not wait for a retry."""

    def refuses(self, node_id: int) -> bool:
        """True where the last attempt to connect was refused: no process listens there."""
