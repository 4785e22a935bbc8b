"""One node: builds every part once, starts them in order, stops them in the reverse order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from chronik.broker.cleaner import Cleaner
from chronik.broker.clock import Clock, SystemClock
from chronik.broker.disk import Disk
from chronik.broker.first_start import FirstStart
from chronik.broker.joining import Joining
from chronik.broker.lifecycle import Lifecycle
from chronik.broker.maintenance import Maintenance
from chronik.broker.membership import PEER_LISTENER
from chronik.broker.metrics import Metrics
from chronik.broker.replication import Replication
from chronik.broker.status import Health, NodeStatus
from chronik.broker.syncing import open_syncing
from chronik.broker.watch import LoopWatch
from chronik.cluster.image import EMPTY, Endpoint
from chronik.handlers.peer_table import PEER_TABLE
from chronik.handlers.router import Router
from chronik.handlers.table import TABLE
from chronik.model import limits
from chronik.model.broker_configs import effective
from chronik.model.configs import BrokerLayers
from chronik.model.settings import NodeSettings, static_configs
from chronik.net.budget import Budget
from chronik.net.http import HttpServer, Pages
from chronik.net.listener import Listener
from chronik.net.peers import PeerLinks
from chronik.node.building import LISTENER, Ground, build_broker, build_trace
from chronik.node.listening import listening
from chronik.node.reporting import Reporting
from chronik.raft.messages import ConfState
from chronik.storage.data_dir import DataDir
from chronik.storage.fs import FileSystem, RealFileSystem
from chronik.storage.raft_store import RaftStore

HAND_OVER_S = 0.5
"""How long a stopping node waits for others to take its partitions over."""


class Node:
    """A running node. Use `running(settings)`; it starts and stops it."""

    def __init__(
        self,
        settings: NodeSettings,
        tasks: asyncio.TaskGroup,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.port = 0
        self.peer_port = 0
        self.http_port: int | None = None
        self._tasks = tasks
        self._fs = fs if fs is not None else RealFileSystem()
        self._clock = clock if clock is not None else SystemClock()
        self._loop = asyncio.get_running_loop()
        self._data_dir = DataDir.open(self._fs, settings.data_dir, settings.node_id)
        self._disk = Disk(self._loop)
        self._syncing = open_syncing(self._fs, self._loop, self._clock)
        try:
            self._assemble()
        except BaseException:
            self._close_disk()
            self._data_dir.close()
            raise

    def _assemble(self) -> None:
        """Builds the parts; nothing runs yet."""
        settings, tasks = self.settings, self._tasks
        self.metrics = Metrics(settings.node_id)
        self._watch = LoopWatch(self._loop, self._clock, self.metrics)
        self._http: HttpServer | None = None
        self._lifecycle: Lifecycle | None = None
        self._controller_tasks: list[asyncio.Task[None]] = []
        self._peers = PeerLinks(tasks)
        for node_id, host, port in settings.peers:
            self._peers.set_address(node_id, host, port)
        ground = self._lay_ground()
        self.broker = build_broker(ground)
        self._maintenance = Maintenance(self.broker)
        self._cleaner = Cleaner(self.broker)
        self._joining = Joining(
            settings.node_id, settings.peers, self.broker.controller, self._peers
        )
        self._replication = Replication(
            settings.node_id,
            self._peers,
            self.broker.commit,
            self._disk,
            tasks,
            self._broker_epoch,
        )
        self._listener = Listener(
            Router(self.broker, TABLE, tasks),
            self._clock,
            Budget(),
            _connections_max(ground.static),
            outbox=self.broker.outbox,
        )
        self._peer_listener = Listener(
            Router(self.broker, PEER_TABLE, tasks),
            self._clock,
            Budget(),
            outbox=self.broker.outbox,
            internal=True,
        )
        self._reporting = Reporting(
            self.broker, self._listener, self._maintenance, self._cleaner, self._watch
        )

    def _lay_ground(self) -> Ground:
        settings = self.settings
        self._trace = build_trace(settings, self._data_dir, self._clock)
        self._store = RaftStore.open(self._fs, self._data_dir.metadata)
        self._is_first_start = self._store.is_empty and not settings.join
        if self._is_first_start and not settings.peers:
            self._store.bootstrap(ConfState(voters=(settings.node_id,)))
        return Ground(
            settings=settings,
            static=static_configs(settings, LISTENER),
            loop=self._loop,
            tasks=self._tasks,
            clock=self._clock,
            fs=self._fs,
            data_dir=self._data_dir,
            disk=self._disk,
            syncing=self._syncing,
            store=self._store,
            tracer=self._trace.tracer,
            metrics=self.metrics,
            peers=self._peers,
        )

    def _broker_epoch(self) -> int:
        me = self.broker.controller.image.brokers.get(self.settings.node_id)
        return -1 if me is None else me.epoch

    # -- start

    async def start(self) -> None:
        """Metadata first, then the logs, then the door."""
        self._watch.start()
        await self._bind()
        lifecycle = await self._join_cluster()
        await self._open_logs()
        await lifecycle.start(self._tasks)
        await self._listener.start()
        await self._start_http()
        self._maintenance.start(self._tasks)
        self._cleaner.start(self._tasks)

    async def _bind(self) -> None:
        """Takes the ports; peers are served at once, clients when the logs are open."""
        host, port = self.settings.host, self.settings.port
        self.port = await listening("--port", host, port, self._listener.bind(host, port))
        if self.settings.peers:
            host = self.settings.peer_host or self.settings.host
            port = self.settings.peer_port
            self.peer_port = await listening(
                "--peer-port", host, port, self._peer_listener.bind(host, port)
            )
            await self._peer_listener.start()

    async def _join_cluster(self) -> Lifecycle:
        """Metadata log, membership, registration: afterwards this node has the whole image."""
        controller = self.broker.controller
        voters = tuple(sorted(peer[0] for peer in self.settings.peers))
        first = FirstStart(self._fs, self._data_dir.path, controller, self._peers, voters)
        if self.settings.peers and not self.settings.join:
            await first.decide(is_empty=self._is_first_start)
        self._controller_tasks = await controller.start(self._tasks)
        for work in (first.announce(), first.elect()):
            self._controller_tasks.append(self._tasks.create_task(work))
        controller.subscribe(self._joining.learn)
        self._joining.learn(EMPTY, controller.image)
        if self.settings.join:
            address = self._joining.own_address(self.advertised[0], self.peer_port)
            joining = self._tasks.create_task(self._joining.run(address))
            self._controller_tasks.append(joining)
        self._lifecycle = Lifecycle(
            self.settings.node_id,
            controller,
            self._peers,
            self._endpoints(),
            self.broker.static.get("broker.rack"),
            self._data_dir.directory_id,
        )
        await self._lifecycle.register()
        first.caught_up()
        return self._lifecycle

    async def _open_logs(self) -> None:
        """Only with the whole image can a node tell its logs from strays."""
        broker, controller = self.broker, self.broker.controller
        broker.partitions.watch_roles(self._replication.role_changed)
        broker.partitions.watch_roles(broker.coordinators.role_changed)
        await broker.partitions.recover(controller)
        controller.subscribe(broker.coordinators.image_changed)
        controller.subscribe(broker.unknown_topics.image_changed)
        broker.isr.start(self._tasks)

    def _endpoints(self) -> tuple[Endpoint, ...]:
        client = Endpoint(LISTENER, *self.advertised)
        if not self.settings.peers:
            return (client,)
        peer = self._joining.own_address(self.advertised[0], self.peer_port)
        return client, Endpoint(PEER_LISTENER, *peer)

    async def _start_http(self) -> None:
        self._reporting.connect_metrics()
        if self.settings.http_port is not None:
            self._http = HttpServer(Pages(self.metrics, self.status, self.health), self._tasks)
            host = self.settings.http_host or self.settings.host
            port = self.settings.http_port
            self.http_port = await listening(
                "--http-port", host, port, self._http.start(host, port)
            )

    # -- stop

    async def stop(self) -> None:
        """Hands over, finishes what is under way, makes it durable, frees the ports."""
        self._maintenance.stop()
        self._cleaner.stop()
        if self._lifecycle is not None:
            await self._lifecycle.hand_over(HAND_OVER_S)
            await self.broker.controller.hand_over(HAND_OVER_S)
            self._lifecycle.stop()
        self._listener.stop_accepting()
        if self._http is not None:
            self._http.close()
        self._replication.stop()
        self.broker.isr.stop()
        self.broker.coordinators.close()
        await self.broker.commit.drain()
        self._listener.close()
        await self._cleaner.stopped()
        await self.broker.partitions.close()
        for task in self._controller_tasks:
            task.cancel()
        await asyncio.gather(*self._controller_tasks, return_exceptions=True)
        await self.broker.controller.saved()
        self._peer_listener.close()
        self._peers.close()
        self._store.close()
        self._watch.stop()
        await self._disk.run(self._trace.close)
        self.broker.recompression.close()
        self._close_disk()
        self._data_dir.close()

    def _close_disk(self) -> None:
        if self._syncing is not None:
            self._syncing.close()
        self._disk.close()

    # -- what others see

    @property
    def advertised(self) -> tuple[str, int]:
        """The address that clients are told."""
        host = self.settings.advertised_host or self.settings.host
        return host, self.settings.advertised_port or self.port

    @property
    def bootstrap(self) -> str:
        """What to give a client on this machine as bootstrap server."""
        host, port = self.advertised
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def health(self) -> Health:
        """Healthy unless the disk refuses writes."""
        return self._reporting.health()

    def status(self) -> NodeStatus:
        """One look at the node, for the status page."""
        return self._reporting.status(f"{self.settings.host}:{self.port}", self.bootstrap)


def _connections_max(static: dict[str, str]) -> int:
    configured = int(str(effective("max.connections", BrokerLayers(static=static))))
    return min(configured, limits.CONNECTIONS_MAX)


@asynccontextmanager
async def running(settings: NodeSettings) -> AsyncIterator[Node]:
    """A node from its start to its stop; its tasks end with it."""
    async with asyncio.TaskGroup() as tasks:
        node = Node(settings, tasks)
        try:
            await node.start()
            yield node
        finally:
            await node.stop()
