"""Metrics in Prometheus' text format, under the names that dashboards for Kafka know.

Text takes long, so `render` runs in a thread. Reading an int there is safe, a dict is copied whole
before it is walked, and the partitions are listed on the event loop and handed over.
prometheus_client is loaded here and only here: import this module where the HTTP page is on.
"""

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from chronik.broker.metrics import LATENCY_BOUNDS_US, Latency, Metrics
from chronik.broker.status import PartitionStatus
from chronik.model.errors import ErrorCode
from chronik.model.limits import PARTITION_SERIES_MAX

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_TOPIC = "kafka_server_brokertopicmetrics_"
_REQUEST = "kafka_network_requestmetrics_"
_REPLICA = "kafka_server_replicamanager_"
_LOG = "kafka_log_log_"

_TOPIC_COUNTERS = (
    ("messagesin", "messages_in", "Records appended by producers."),
    ("bytesin", "bytes_in", "Bytes of record batches appended by producers."),
    ("bytesout", "bytes_out", "Bytes of record batches sent to consumers."),
    ("totalproducerequests", "produces", "Produce requests, one per partition."),
    ("totalfetchrequests", "fetches", "Fetch requests of consumers, one per partition."),
    ("failedproducerequests", "failed_produces", "Produce requests that failed, per partition."),
    ("failedfetchrequests", "failed_fetches", "Fetch requests that failed, per partition."),
    ("replicationbytesin", "replication_bytes_in", "Bytes fetched from leaders."),
    ("replicationbytesout", "replication_bytes_out", "Bytes sent to followers."),
)
_PARTITION_GAUGES = (
    ("size", "size_bytes", "Bytes of the partition's segments."),
    ("logendoffset", "log_end", "Offset after the last record."),
    ("logstartoffset", "log_start", "Offset of the first record kept."),
    ("highwatermark", "high_watermark", "Offset after the last record consumers may read."),
)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _topics(metrics: Metrics) -> Iterator[Metric]:
    for name, attribute, text in _TOPIC_COUNTERS:
        family = CounterMetricFamily(_TOPIC + name, text, labels=["topic"])
        for topic, counters in list(metrics.topics.items()):
            family.add_metric([topic], getattr(counters, attribute))
        yield family


def _buckets(latency: Latency) -> list[tuple[str, float]]:
    bounds = [str(bound / 1e6) for bound in LATENCY_BOUNDS_US] + ["+Inf"]
    return list(zip(bounds, accumulate(latency.buckets), strict=True))


def _requests(metrics: Metrics) -> Iterator[Metric]:
    count = CounterMetricFamily(
        _REQUEST + "requests",
        "Requests answered, by their first error.",
        labels=["request", "error"],
    )
    time = HistogramMetricFamily(
        _REQUEST + "totaltime_seconds",
        "From the whole request in memory to its answer handed to the socket.",
        labels=["request"],
    )
    bytes_in = CounterMetricFamily(_REQUEST + "requestbytes", "Request bytes.", labels=["request"])
    bytes_out = CounterMetricFamily(
        _REQUEST + "responsebytes", "Response bytes.", labels=["request"]
    )
    for name, api in list(metrics.apis.items()):
        for code, answered in list(api.by_error.items()):
            count.add_metric([name, _error_name(code)], answered)
        time.add_metric([name], _buckets(api.latency), api.latency.sum_us / 1e6)
        bytes_in.add_metric([name], api.bytes_in)
        bytes_out.add_metric([name], api.bytes_out)
    yield from (count, time, bytes_in, bytes_out)


def _refusals(metrics: Metrics) -> Iterator[Metric]:
    rejected = CounterMetricFamily(
        "chronik_rejected_partitions",
        "Partitions of Produce and Fetch requests answered with an error.",
        labels=["request", "error"],
    )
    for (request, code), count in list(metrics.rejected.items()):
        rejected.add_metric([request, _error_name(code)], count)
    yield rejected
    yield from _by_client(metrics)


def _by_client(metrics: Metrics) -> Iterator[Metric]:
    for name, text, counted in (
        ("forwarded", "Requests sent on to the partition's leader.", metrics.forwarded),
        ("not_leader", "Requests answered with NOT_LEADER_OR_FOLLOWER.", metrics.not_leader),
    ):
        family = CounterMetricFamily(f"chronik_{name}_requests", text, labels=["request", "client"])
        for (request, client), count in list(counted.counts.items()):
            family.add_metric([request, client], count)
        yield family


def _partitions(metrics: Metrics, partitions: list[PartitionStatus]) -> Iterator[Metric]:
    leading = sum(1 for one in partitions if one.leader == metrics.node_id)
    under = sum(1 for one in partitions if one.leader == metrics.node_id and one.under_replicated)
    offline = sum(1 for one in partitions if one.leader < 0)
    yield _gauge(_REPLICA + "partitioncount", "Replicas on this node.", len(partitions))
    yield _gauge(_REPLICA + "leadercount", "Partitions that this node leads.", leading)
    yield _gauge(
        _REPLICA + "underreplicatedpartitions", "Led here with a replica out of sync.", under
    )
    yield _gauge(_REPLICA + "offlinereplicacount", "Replicas here without a leader.", offline)
    shown = partitions[:PARTITION_SERIES_MAX]
    for name, attribute, text in _PARTITION_GAUGES:
        family = GaugeMetricFamily(_LOG + name, text, labels=["topic", "partition"])
        for one in shown:
            family.add_metric([one.topic, str(one.partition)], getattr(one, attribute))
        yield family
    text = "Partitions without series of their own, because there are too many."
    yield _gauge("chronik_partition_series_omitted", text, len(partitions) - len(shown))


def _node(metrics: Metrics) -> Iterator[Metric]:
    ask, stalls = metrics.providers, metrics.stalls
    socket = "kafka_server_socketservermetrics_"
    yield _gauge(socket + "connection_count", "Open client connections.", ask.connections())
    yield _counter(
        "chronik_refused_connections",
        "Clients turned away at the limit.",
        ask.refused_connections(),
    )
    yield _counter(
        "chronik_refused_frames", "Frames with an impossible length.", ask.refused_frames()
    )
    yield _gauge("chronik_in_flight_bytes", "Request bytes held.", ask.in_flight_bytes())
    yield _gauge(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "1 on the active controller.",
        int(ask.is_controller()),
    )
    stall = HistogramMetricFamily(
        "chronik_event_loop_stall_seconds", "Pauses of the event loop above the limit."
    )
    stall.add_metric([], [("+Inf", stalls.count)], stalls.sum_us / 1e6)
    yield stall
    text = "Longest pause of the event loop, stall or not."
    yield _gauge("chronik_event_loop_pause_seconds_max", text, stalls.max_us / 1e6)


def _watermarks(metrics: Metrics) -> Iterator[Metric]:
    ask = metrics.providers
    family = GaugeMetricFamily(
        "chronik_partitions_behind",
        "Partitions led here whose log end stays ahead of the watermark.",
        labels=["level"],
    )
    family.add_metric(["warn"], ask.watermarks_warned())
    family.add_metric(["alarm"], ask.watermarks_alarmed())
    yield family
    text = "Messages not committed half a second after they came, of the worst partition."
    yield _gauge("chronik_watermark_behind_messages_max", text, ask.watermark_behind_max())


def _disk(metrics: Metrics) -> Iterator[Metric]:
    ask = metrics.providers
    commit = "chronik_group_commit_"
    yield _counter(commit + "cycles", "Group commits started.", ask.commit_cycles())
    yield _counter(commit + "bytes", "Bytes made durable.", ask.commit_bytes())
    yield _counter(
        commit + "disk_seconds", "Time in write and fdatasync.", ask.commit_disk_us() / 1e6
    )
    yield _counter(commit + "failures", "Writes the disk refused.", ask.commit_failures())
    cleaner = "chronik_compaction_"
    yield _counter("chronik_compactions", "Logs compacted.", ask.compactions())
    yield _counter(cleaner + "failures", "Compactions given up.", ask.compaction_failures())
    text = "Bytes of the logs that were compacted."
    yield _counter(cleaner + "read_bytes", text, ask.compaction_bytes_read())
    text = "Bytes that were left of them."
    yield _counter(cleaner + "written_bytes", text, ask.compaction_bytes_written())
    yield _counter("chronik_trace_dropped_events", "Trace events lost.", ask.trace_dropped())


def _anonymous_memory() -> Iterator[Metric]:
    """Resident memory without mapped segment files, which the kernel takes back when it likes."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("RssAnon:"):
            size = int(line.split()[1]) * 1024
            text = "Resident memory without mapped files."
            yield _gauge("chronik_process_anonymous_memory_bytes", text, size)


class _Collector:
    """What prometheus_client asks for the node's families."""

    def __init__(self, metrics: Metrics, partitions: list[PartitionStatus]) -> None:
        self._metrics = metrics
        self._partitions = partitions

    def collect(self) -> Iterator[Metric]:
        """Every family of the node."""
        yield from _topics(self._metrics)
        yield from _requests(self._metrics)
        yield from _refusals(self._metrics)
        yield from _partitions(self._metrics, self._partitions)
        yield from _node(self._metrics)
        yield from _watermarks(self._metrics)
        yield from _disk(self._metrics)
        yield from _anonymous_memory()


def render(metrics: Metrics, partitions: list[PartitionStatus]) -> bytes:
    """The text, with the process's own metrics; `partitions` were listed on the event loop."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Collector(metrics, partitions))
    return generate_latest(registry)
