"""What a node tells of itself: its health, its status page, and the counters of its parts."""

from chronik.broker.broker import Broker
from chronik.broker.cleaner import Cleaner
from chronik.broker.maintenance import Maintenance
from chronik.broker.status import Health, ListenerStatus, NodeStatus
from chronik.broker.watch import LoopWatch
from chronik.broker.watermarks import Level
from chronik.net.listener import Listener


class Reporting:
    """Reads the parts of a node when somebody asks; keeps nothing but the time of its start."""

    def __init__(
        self,
        broker: Broker,
        listener: Listener,
        maintenance: Maintenance,
        cleaner: Cleaner,
        watch: LoopWatch,
    ) -> None:
        self._broker = broker
        self._listener = listener
        self._maintenance = maintenance
        self._cleaner = cleaner
        self._watch = watch
        self._started_ns = broker.clock.monotonic_ns()

    def health(self) -> Health:
        """Healthy unless the disk refuses writes."""
        failing = self._broker.commit.failing
        return Health((f"the disk refuses writes: {failing}",) if failing else ())

    def status(self, bound: str, advertised: str) -> NodeStatus:
        """One look at the node that listens there, for the status page."""
        from importlib.metadata import version  # noqa: PLC0415 - much that a start need not load

        broker, settings, watch = self._broker, self._broker.settings, self._watch
        commit, image, stalls = broker.commit, broker.controller.image, broker.metrics.stalls
        return NodeStatus(
            node_id=settings.node_id,
            cluster_id=image.cluster_id,
            version=version("chronik"),
            uptime_s=(broker.clock.monotonic_ns() - self._started_ns) / 1e9,
            health=self.health(),
            listeners=(ListenerStatus(broker.listener_name, bound, advertised),),
            controller=broker.controller.leader_id,
            brokers=tuple(image.brokers),
            partitions=tuple(broker.partitions.status()),
            connections=len(self._listener.connections),
            in_flight_bytes=self._listener.budget.used,
            rates=watch.history.now(),
            curve=watch.history.curve(),
            stalls=stalls.count,
            stall_s_max=stalls.max_us / 1e6,
            durability=settings.durability,
            commit_cycles=commit.cycles,
            commit_ms_mean=commit.disk_us / max(1, commit.cycles) / 1000,
            trace_mode=settings.trace,
            trace_dropped=broker.tracer.dropped,
        )

    def connect_metrics(self) -> None:
        """Has the metrics read the parts' counters when they are asked for."""
        broker, listener, cleaner = self._broker, self._listener, self._cleaner
        commit, providers = broker.commit, broker.metrics.providers
        providers.partitions = broker.partitions.status
        providers.connections = lambda: len(listener.connections)
        providers.refused_connections = lambda: listener.refused_connections
        providers.refused_frames = lambda: listener.refused_frames
        providers.in_flight_bytes = lambda: listener.budget.used
        providers.commit_cycles = lambda: commit.cycles
        providers.commit_bytes = lambda: commit.bytes_written
        providers.commit_disk_us = lambda: commit.disk_us
        providers.commit_failures = lambda: commit.failures
        providers.compactions = lambda: cleaner.cleanings
        providers.compaction_failures = lambda: cleaner.failures
        providers.compaction_bytes_read = lambda: cleaner.bytes_read
        providers.compaction_bytes_written = lambda: cleaner.bytes_written
        providers.trace_dropped = lambda: broker.tracer.dropped
        monitor = self._maintenance.monitor
        providers.watermarks_warned = lambda: monitor.count(Level.WARN)
        providers.watermarks_alarmed = lambda: monitor.count(Level.ALARM)
        providers.watermark_behind_max = lambda: monitor.behind_max
        providers.is_controller = lambda: int(broker.controller.leader_id == broker.node_id)
