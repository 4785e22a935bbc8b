"""One node: builds every part once, starts them in order, stops them in the reverse order."""

import asyncio
import errno
import logging
import random
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from chronik.broker.broker import Broker
from chronik.broker.cleaner import Cleaner
from chronik.broker.clock import Clock, SystemClock
from chronik.broker.commit import GroupCommit
from chronik.broker.controller import Controller
from chronik.broker.coordinators import Coordinators
from chronik.broker.disk import Disk
from chronik.broker.evidence import trace_controller
from chronik.broker.fetch_sessions import FetchSessions
from chronik.broker.first_start import FirstStart
from chronik.broker.forwarding import Forwarding
from chronik.broker.isr import IsrKeeper
from chronik.broker.joining import Joining
from chronik.broker.lifecycle import Lifecycle
from chronik.broker.maintenance import Maintenance
from chronik.broker.membership import PEER_LISTENER
from chronik.broker.metrics import Metrics
from chronik.broker.partitions import Partitions, Parts
from chronik.broker.producer_ids import ProducerIds
from chronik.broker.recompression import Recompression
from chronik.broker.replication import Replication
from chronik.broker.status import Health, ListenerStatus, NodeStatus
from chronik.broker.watch import LoopWatch
from chronik.broker.watermarks import Level
from chronik.cluster.commands import ControllerSettings
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
from chronik.raft.config import RaftConfig
from chronik.raft.core import RaftNode
from chronik.raft.messages import ConfState
from chronik.storage.data_dir import DataDir
from chronik.storage.fs import FileSystem, RealFileSystem
from chronik.storage.raft_store import RaftStore
from chronik.storage.segment import Storage
from chronik.trace.settings import TraceSettings
from chronik.trace.sinks import Trace, open_trace

LISTENER = "PLAINTEXT"
HAND_OVER_S = 0.5
"""How long a stopping node waits for others to take its partitions over."""

log = logging.getLogger(__name__)


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
        try:
            self._assemble()
        except BaseException:
            self._disk.close()
            self._data_dir.close()
            raise

    def _assemble(self) -> None:
        """Builds the parts; nothing runs yet."""
        settings, tasks = self.settings, self._tasks
        self._trace = self._open_trace()
        self.metrics = Metrics(settings.node_id)
        self._watch = LoopWatch(self._loop, self._clock, self.metrics)
        self._started_ns = self._clock.monotonic_ns()
        self._budget = Budget()
        self._http: HttpServer | None = None
        self._static = static_configs(settings, LISTENER)
        self._peers = PeerLinks(tasks)
        for node_id, host, port in settings.peers:
            self._peers.set_address(node_id, host, port)
        self._store = RaftStore.open(self._fs, self._data_dir.metadata)
        self.broker = self._build()
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
            Router(self.broker, TABLE, tasks), self._clock, self._budget, self._connections_max()
        )
        self._peer_listener = Listener(
            Router(self.broker, PEER_TABLE, tasks), self._clock, Budget(), internal=True
        )
        self._lifecycle: Lifecycle | None = None
        self._controller_tasks: list[asyncio.Task[None]] = []

    def _broker_epoch(self) -> int:
        me = self.broker.controller.image.brokers.get(self.settings.node_id)
        return -1 if me is None else me.epoch

    # -- building

    def _open_trace(self) -> Trace:
        mode = self.settings.trace
        directory = Path(self._data_dir.traces) if mode == "files" else None
        return open_trace(
            TraceSettings(mode=mode, directory=directory),
            self.settings.node_id,
            self._clock.now_ns,
            self._clock.monotonic_ns,
        )

    def _build(self) -> Broker:
        tracer = self._trace.tracer
        commit = GroupCommit(self._loop, self._disk, self._clock)
        controller = self._build_controller()
        controller.watch_leader(partial(trace_controller, tracer))
        partitions = Partitions(
            Parts(
                node_id=self.settings.node_id,
                data_dir=self._data_dir,
                storage=Storage(self._fs),
                static=self._static,
                commit=commit,
                disk=self._disk,
                clock=self._clock,
                metrics=self.metrics,
                tracer=tracer,
            )
        )
        coordinators = Coordinators(
            self._loop,
            self._clock,
            self._disk,
            commit,
            controller,
            partitions,
            lambda: controller.image.layers(self.settings.node_id, self._static),
        )
        return Broker(
            settings=self.settings,
            static=self._static,
            loop=self._loop,
            clock=self._clock,
            disk=self._disk,
            tracer=tracer,
            metrics=self.metrics,
            controller=controller,
            partitions=partitions,
            commit=commit,
            fetch_sessions=FetchSessions(lambda: secrets.randbelow(1 << 31)),
            producer_ids=ProducerIds(controller, self.settings.node_id),
            coordinators=coordinators,
            recompression=Recompression(self._loop, partitions),
            isr=IsrKeeper(self.settings.node_id, controller, partitions, self._clock),
            peers=self._peers,
            forwarding=Forwarding(self._peers, self.metrics, tracer, partitions.name_of),
            tasks=self._tasks,
            listener_name=LISTENER,
        )

    def _build_controller(self) -> Controller:
        node_id = self.settings.node_id
        self._is_first_start = self._store.is_empty and not self.settings.join
        if self._is_first_start and not self.settings.peers:
            self._store.bootstrap(ConfState(voters=(node_id,)))
        draw = random.Random(secrets.randbits(64)).randrange
        raft = RaftNode(
            RaftConfig(node_id=node_id, forward_proposals=False), self._store.load(), draw
        )
        layers = BrokerLayers(static=self._static)
        settings = ControllerSettings(
            num_partitions=int(str(effective("num.partitions", layers))),
            default_replication_factor=int(str(effective("default.replication.factor", layers))),
            delete_topic_enable=bool(effective("delete.topic.enable", layers)),
            place_on_fenced=True,
            static_configs=self._static,
        )
        return Controller(self._disk, self._store, raft, settings, self._peers)

    def _first_start(self) -> FirstStart:
        voters = tuple(sorted(peer[0] for peer in self.settings.peers))
        controller = self.broker.controller
        return FirstStart(self._fs, self._data_dir.path, controller, self._peers, voters)

    def _connections_max(self) -> int:
        configured = int(str(effective("max.connections", BrokerLayers(static=self._static))))
        return min(configured, limits.CONNECTIONS_MAX)

    # -- life

    async def start(self) -> None:
        """Metadata first, then the logs, then the door."""
        self._watch.start()
        broker, controller = self.broker, self.broker.controller
        host, port = self.settings.host, self.settings.port
        self.port = await _listening("--port", host, port, self._listener.bind(host, port))
        if self.settings.peers:
            host = self.settings.peer_host or self.settings.host
            port = self.settings.peer_port
            self.peer_port = await _listening(
                "--peer-port", host, port, self._peer_listener.bind(host, port)
            )
            await self._peer_listener.start()
        first = self._first_start()
        if self.settings.peers and not self.settings.join:
            await first.decide(is_empty=self._is_first_start)
        self._controller_tasks = await controller.start(self._tasks)
        self._controller_tasks.append(self._tasks.create_task(first.announce()))
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
            self._static.get("broker.rack"),
            self._data_dir.directory_id,
        )
        # Registered, this node has the whole image: only now can it tell its logs from strays.
        await self._lifecycle.register()
        first.caught_up()
        broker.partitions.watch_roles(self._replication.role_changed)
        broker.partitions.watch_roles(broker.coordinators.role_changed)
        await broker.partitions.recover(controller)
        controller.subscribe(broker.coordinators.image_changed)
        controller.subscribe(broker.unknown_topics.image_changed)
        broker.isr.start(self._tasks)
        await self._lifecycle.start(self._tasks)
        await self._listener.start()
        await self._start_http()
        self._maintenance.start(self._tasks)
        self._cleaner.start(self._tasks)

    def _endpoints(self) -> tuple[Endpoint, ...]:
        client = Endpoint(LISTENER, *self.advertised)
        if not self.settings.peers:
            return (client,)
        peer = self._joining.own_address(self.advertised[0], self.peer_port)
        return client, Endpoint(PEER_LISTENER, *peer)

    async def _start_http(self) -> None:
        self._connect_metrics()
        if self.settings.http_port is not None:
            self._http = HttpServer(Pages(self.metrics, self.status, self.health), self._tasks)
            host = self.settings.http_host or self.settings.host
            port = self.settings.http_port
            self.http_port = await _listening(
                "--http-port", host, port, self._http.start(host, port)
            )

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
        self._disk.close()
        self._data_dir.close()

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
        failing = self.broker.commit.failing
        return Health((f"the disk refuses writes: {failing}",) if failing else ())

    def status(self) -> NodeStatus:
        """One look at the node, for the status page."""
        commit, image = self.broker.commit, self.broker.controller.image
        uptime_ns = self._clock.monotonic_ns() - self._started_ns
        return NodeStatus(
            node_id=self.settings.node_id,
            cluster_id=image.cluster_id,
            version=version("chronik"),
            uptime_s=uptime_ns / 1e9,
            health=self.health(),
            listeners=(
                ListenerStatus(LISTENER, f"{self.settings.host}:{self.port}", self.bootstrap),
            ),
            controller=self.broker.controller.leader_id,
            brokers=tuple(image.brokers),
            partitions=tuple(self.broker.partitions.status()),
            connections=len(self._listener.connections),
            in_flight_bytes=self._budget.used,
            rates=self._watch.history.now(),
            curve=self._watch.history.curve(),
            stalls=self.metrics.stalls.count,
            stall_s_max=self.metrics.stalls.max_us / 1e6,
            durability=self.settings.durability,
            commit_cycles=commit.cycles,
            commit_ms_mean=commit.disk_us / max(1, commit.cycles) / 1000,
            trace_mode=self.settings.trace,
            trace_dropped=self._trace.tracer.dropped,
        )

    def _connect_metrics(self) -> None:
        commit, listener, providers = self.broker.commit, self._listener, self.metrics.providers
        providers.partitions = self.broker.partitions.status
        providers.connections = lambda: len(listener.connections)
        providers.refused_connections = lambda: listener.refused_connections
        providers.refused_frames = lambda: listener.refused_frames
        providers.in_flight_bytes = lambda: self._budget.used
        providers.commit_cycles = lambda: commit.cycles
        providers.commit_bytes = lambda: commit.bytes_written
        providers.commit_disk_us = lambda: commit.disk_us
        providers.commit_failures = lambda: commit.failures
        cleaner = self._cleaner
        providers.compactions = lambda: cleaner.cleanings
        providers.compaction_failures = lambda: cleaner.failures
        providers.compaction_bytes_read = lambda: cleaner.bytes_read
        providers.compaction_bytes_written = lambda: cleaner.bytes_written
        providers.trace_dropped = lambda: self._trace.tracer.dropped
        monitor = self._maintenance.monitor
        providers.watermarks_warned = lambda: monitor.count(Level.WARN)
        providers.watermarks_alarmed = lambda: monitor.count(Level.ALARM)
        providers.watermark_behind_max = lambda: monitor.behind_max
        providers.is_controller = lambda: int(
            self.broker.controller.leader_id == self.settings.node_id
        )


class ListenError(OSError):
    """An address cannot be listened on; the message says which, why and what to do."""

    def __str__(self) -> str:
        return str(self.strerror)


async def _listening(option: str, host: str, port: int, bind: Coroutine[Any, Any, int]) -> int:
    try:
        return await bind
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ListenError(
                error.errno,
                f"port {port} on {host} is taken: stop what listens there, "
                f"or choose another with {option}",
            ) from error
        reason = error.strerror or str(error)
        message = f"cannot listen on {host}:{port} ({option}): {reason}"
        raise ListenError(error.errno, message) from error


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
