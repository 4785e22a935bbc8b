"""The ingest in numbers, for Prometheus: lag, rows, bad records, commits."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from chronik.pipeline.client import TopicPartition
from chronik.pipeline.tasks import Counts

_COUNTERS = (
    ("rows", "Records that became rows of the table."),
    ("bad_records", "Records that went to the dead letter table."),
    ("gaps", "Offsets without a record: markers, aborted records, compaction."),
    ("commits", "Commits of the table."),
)


@dataclass
class TopicCounters:
    """One topic, since this process began."""

    rows: int = 0
    bad_records: int = 0
    gaps: int = 0
    commits: int = 0
    committed_s: float = 0.0
    lag: dict[int, int] = field(default_factory=dict)


class Counters:
    """Written by the job, read by the thread that answers Prometheus."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicCounters] = {}
        self._lock = threading.Lock()
        self.port = 0
        """Where they are served."""

    def committed(self, topic: str, counts: Counts, committed_ms: int) -> None:
        """After each commit."""
        with self._lock:
            one = self._topics.setdefault(topic, TopicCounters())
            one.rows += counts.rows
            one.bad_records += counts.bad
            one.gaps += counts.gaps
            one.commits += 1
            one.committed_s = committed_ms / 1_000

    def left(
        self, topic: str, ends: Mapping[TopicPartition, int], table: Mapping[int, int]
    ) -> None:
        """How far the table is behind the ends that the log had when this round began."""
        lag = {p: max(0, end - table.get(p, 0)) for (_, p), end in ends.items()}
        with self._lock:
            self._topics.setdefault(topic, TopicCounters()).lag = lag

    def collect(self) -> Iterator[Metric]:
        """The families of metrics, as prometheus_client asks for them."""
        with self._lock:
            topics = {
                topic: (vars(one) | {"lag": dict(one.lag)}) for topic, one in self._topics.items()
            }
        for name, text in _COUNTERS:
            family = CounterMetricFamily(f"chronik_ingest_{name}", text, labels=["topic"])
            for topic, one in topics.items():
                family.add_metric([topic], one[name])
            yield family
        last = GaugeMetricFamily(
            "chronik_ingest_last_commit_timestamp_seconds",
            "Time of the last commit.",
            labels=["topic"],
        )
        lag = GaugeMetricFamily(
            "chronik_ingest_lag", "Offsets that the table is behind.", labels=["topic", "partition"]
        )
        for topic, one in topics.items():
            if one["commits"]:
                last.add_metric([topic], one["committed_s"])
            for partition, behind in one["lag"].items():
                lag.add_metric([topic, str(partition)], behind)
        yield from (last, lag)

    def text(self) -> str:
        """In Prometheus' text format."""
        return generate_latest(self._registry()).decode()

    def serve(self, port: int, host: str = "127.0.0.1") -> Callable[[], None]:
        """Answers on `/metrics` from a thread; returns what stops it."""
        server, thread = start_http_server(port, host, self._registry())
        self.port = server.server_port

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop

    def _registry(self) -> CollectorRegistry:
        registry = CollectorRegistry()
        registry.register(self)
        return registry
