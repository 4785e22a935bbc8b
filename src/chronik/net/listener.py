"""A listening socket and its connections."""

import asyncio
import logging

from chronik.broker.clock import Clock
from chronik.broker.outbox import Outbox
from chronik.handlers.call import Peer
from chronik.model import limits
from chronik.net.budget import Budget
from chronik.net.connection import Connection, Router
from chronik.net.frames import FramePool

_RECEIVE_BYTES = 256 * 1024

log = logging.getLogger(__name__)


class Listener:
    """Accepts clients on one address."""

    def __init__(
        self,
        router: Router,
        clock: Clock,
        budget: Budget,
        connections_max: int = limits.CONNECTIONS_MAX,
        *,
        outbox: Outbox | None = None,
        internal: bool = False,
    ) -> None:
        self.router = router
        self.clock = clock
        self.budget = budget
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self.frame_pool = FramePool(budget)
        self.outbox = outbox if outbox is not None else Outbox()
        self.connections: set[Connection] = set()
        self.refused_connections = 0
        self.refused_frames = 0
        self.internal = internal
        self._connections_max = connections_max
        self._server: asyncio.Server | None = None

    async def bind(self, host: str, port: int) -> int:
        """Takes the port, which the system chooses if it is 0; nobody is served before `start`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self),
            host,
            port,
            backlog=1024,
            reuse_address=True,
            start_serving=False,
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Opens the door."""
        assert self._server is not None
        await self._server.start_serving()

    def admit(self, connection: Connection) -> bool:
        """Counts a new client in; False when there are too many."""
        if len(self.connections) >= self._connections_max:
            self.refused_connections += 1
            log.warning(
                "refused %s: %d connections are open, the limit; raise max.connections",
                connection.peer,
                len(self.connections),
            )
            return False
        self.connections.add(connection)
        return True

    def dismiss(self, connection: Connection) -> None:
        """Counts a client out."""
        self.connections.discard(connection)
        self.budget.forget(connection)

    def refused_frame(self, peer: Peer, size: int) -> None:
        """A client announced a frame that cannot be: no Kafka client, or a broken one."""
        self.refused_frames += 1
        log.warning(
            "closed %s: it announced a request of %d bytes, allowed are 1 to %d; is it a Kafka "
            "client, and does it use TLS on a plain port?",
            peer,
            size,
            limits.REQUEST_BYTES_MAX,
        )

    def dropped_frame(self, peer: Peer, size: int) -> None:
        """A client did not send the rest of a frame while others waited for its memory."""
        self.refused_frames += 1
        log.warning(
            "closed %s: its request of %d bytes did not arrive within %d s, while unfinished "
            "requests hold all the memory they may have (%d MiB)",
            peer,
            size,
            limits.FRAME_TURN_S,
            self.budget.limit // 2 >> 20,
        )

    def stop_accepting(self) -> None:
        """Frees the port; the clients that are here get their answers, and ask no more."""
        if self._server is not None:
            self._server.close()
        self._connections_max = 0
        for connection in list(self.connections):
            connection.stop_reading()

    def close(self) -> None:
        """Frees the port and says goodbye to everybody."""
        self.stop_accepting()
        for connection in list(self.connections):
            connection.close()
        self.router.close()
