"""Which part of a node knows which: trace, controller and broker, built on what the node opened.

Nothing runs yet when these return.
"""

import asyncio
import random
import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from chronik.broker.broker import Broker
from chronik.broker.clock import Clock
from chronik.broker.commit import GroupCommit
from chronik.broker.controller import Controller
from chronik.broker.coordinators import Coordinators
from chronik.broker.disk import Disk
from chronik.broker.evidence import trace_controller
from chronik.broker.fetch_sessions import FetchSessions
from chronik.broker.forwarding import Forwarding
from chronik.broker.isr import IsrKeeper
from chronik.broker.metrics import Metrics
from chronik.broker.outbox import Outbox
from chronik.broker.partitions import Partitions, Parts
from chronik.broker.producer_ids import ProducerIds
from chronik.broker.recompression import Recompression
from chronik.broker.replica_sessions import ReplicaSessions
from chronik.broker.syncing import Syncing
from chronik.broker.turns import Turns
from chronik.cluster.commands import ControllerSettings
from chronik.model.broker_configs import effective
from chronik.model.configs import BrokerLayers
from chronik.model.settings import NodeSettings
from chronik.net.peers import PeerLinks
from chronik.raft.config import RaftConfig
from chronik.raft.core import RaftNode
from chronik.storage.data_dir import DataDir
from chronik.storage.fs import FileSystem
from chronik.storage.raft_store import RaftStore
from chronik.storage.segment import Storage
from chronik.trace.settings import TraceSettings
from chronik.trace.sinks import Trace, open_trace
from chronik.trace.tracer import Tracer

LISTENER = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Ground:
    """What a node opens first; the parts are built on it."""

    settings: NodeSettings
    static: dict[str, str]
    """Broker configs that a start fixes."""
    loop: asyncio.AbstractEventLoop
    tasks: asyncio.TaskGroup
    clock: Clock
    fs: FileSystem
    data_dir: DataDir
    disk: Disk
    syncing: Syncing | None
    store: RaftStore
    tracer: Tracer
    metrics: Metrics
    peers: PeerLinks


def build_trace(settings: NodeSettings, data_dir: DataDir, clock: Clock) -> Trace:
    """Where the node's trace events go."""
    directory = Path(data_dir.traces) if settings.trace == "files" else None
    return open_trace(
        TraceSettings(mode=settings.trace, directory=directory),
        settings.node_id,
        clock.now_ns,
        clock.monotonic_ns,
    )


def build_broker(ground: Ground) -> Broker:
    """Controller, partitions, group commit, coordinators: everything that handlers call."""
    node_id, clock, tracer = ground.settings.node_id, ground.clock, ground.tracer
    outbox = Outbox()
    commit = GroupCommit(ground.loop, ground.disk, clock, ground.syncing, outbox)
    commit.broken = partial(_end_node, ground.tasks)
    controller = _build_controller(ground)
    controller.watch_leader(partial(trace_controller, tracer))
    turns = Turns(ground.loop, clock, commit.is_urgent)
    commit.urgent_done = turns.go_on
    partitions = _build_partitions(ground, commit, turns)

    def layers() -> BrokerLayers:
        return controller.image.layers(node_id, ground.static)

    coordinators = Coordinators(
        ground.loop,
        clock,
        ground.disk,
        commit,
        controller,
        partitions,
        layers,
    )
    return Broker(
        settings=ground.settings,
        static=ground.static,
        loop=ground.loop,
        clock=clock,
        disk=ground.disk,
        tracer=tracer,
        metrics=ground.metrics,
        controller=controller,
        partitions=partitions,
        commit=commit,
        outbox=outbox,
        fetch_sessions=FetchSessions(lambda: secrets.randbelow(1 << 31)),
        replica_sessions=ReplicaSessions(ground.loop, lambda: secrets.randbelow(1 << 31)),
        producer_ids=ProducerIds(controller, node_id),
        coordinators=coordinators,
        recompression=Recompression(ground.loop, partitions),
        isr=IsrKeeper(node_id, controller, partitions, clock, layers),
        peers=ground.peers,
        forwarding=Forwarding(ground.peers, ground.metrics, tracer, partitions.name_of),
        tasks=ground.tasks,
        turns=turns,
        listener_name=LISTENER,
    )


def _build_partitions(ground: Ground, commit: GroupCommit, turns: Turns) -> Partitions:
    return Partitions(
        Parts(
            node_id=ground.settings.node_id,
            data_dir=ground.data_dir,
            storage=Storage(ground.fs),
            static=ground.static,
            commit=commit,
            disk=ground.disk,
            clock=ground.clock,
            metrics=ground.metrics,
            tracer=ground.tracer,
            turns=turns,
        )
    )


def _build_controller(ground: Ground) -> Controller:
    draw = random.Random(secrets.randbits(64)).randrange
    # Five heartbeats in the shortest election timeout; each costs every node some Python.
    config = RaftConfig(ground.settings.node_id, heartbeat_ticks=2, forward_proposals=False)
    raft = RaftNode(config, ground.store.load(), draw)
    layers = BrokerLayers(static=ground.static)
    settings = ControllerSettings(
        num_partitions=int(str(effective("num.partitions", layers))),
        default_replication_factor=int(str(effective("default.replication.factor", layers))),
        delete_topic_enable=bool(effective("delete.topic.enable", layers)),
        place_on_fenced=True,
        static_configs=ground.static,
    )
    return Controller(ground.disk, ground.store, raft, settings, ground.peers)


def _end_node(tasks: asyncio.TaskGroup, error: Exception) -> None:
    """An invariant is broken: the node's tasks end, with this error as the reason."""

    async def fail() -> None:
        raise error

    tasks.create_task(fail())
