"""Counters of the hot path: plain ints in slotted objects, and no other cost until somebody asks.

The owner of a request keeps its `ApiCounters` and `TopicCounters` and adds to their fields; names,
labels and text are `exposition.py`'s business. What other objects count already is not counted
twice: the node registers callables in `Providers`. Only the event-loop thread writes here.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chronik.broker.status import PartitionStatus, Totals
from chronik.model.limits import EVENT_LOOP_STALL_MS, METRIC_CLIENTS_MAX

LATENCY_BOUNDS_US = (
    *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000),
    *(100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000),
)
"""Upper bounds, inclusive; one more bucket takes the rest."""
OTHER_CLIENTS = "(others)"


class Latency:
    """A histogram with fixed buckets."""

    __slots__ = ("buckets", "sum_us")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BOUNDS_US) + 1)
        self.sum_us = 0

    def observe_us(self, duration_us: int) -> None:
        """Counts one duration."""
        self.buckets[bisect_left(LATENCY_BOUNDS_US, duration_us)] += 1
        self.sum_us += duration_us

    @property
    def count(self) -> int:
        """Durations counted."""
        return sum(self.buckets)


class ApiCounters:
    """Requests of one API, answered."""

    __slots__ = ("by_error", "bytes_in", "bytes_out", "latency", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_error: dict[int, int] = {0: 0}
        self.latency = Latency()
        self.bytes_in = 0
        self.bytes_out = 0

    def answered(self, duration_us: int, error_code: int = 0) -> None:
        """Counts one answer; the error is the request's first, 0 where there was none."""
        self.by_error[error_code] = self.by_error.get(error_code, 0) + 1
        self.latency.observe_us(duration_us)


class TopicCounters:
    """Traffic of one topic on this node."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def produced(self, messages: int, size: int) -> None:
        """One batch was appended."""
        self.produces += 1
        self.messages_in += messages
        self.bytes_in += size

    def fetched(self, size: int) -> None:
        """One partition of a consumer's fetch was answered."""
        self.fetches += 1
        self.bytes_out += size


class ByClient:
    """How often each client sent what another node should have got; it has old metadata, or one
    address only. Client ids are the clients' invention: beyond a bound they share one count."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def add(self, request: str, client_id: str | None) -> None:
        """Counts one request of a client."""
        key = (request, client_id or "")
        if key not in self.counts and len(self.counts) >= METRIC_CLIENTS_MAX:
            key = (request, OTHER_CLIENTS)
        self.counts[key] = self.counts.get(key, 0) + 1

    def total(self, request: str) -> int:
        """Of all clients."""
        return sum(count for (one, _), count in list(self.counts.items()) if one == request)


class Stalls:
    """Pauses of the event loop: each delays every client at once, so each is a bug to find."""

    __slots__ = ("count", "limit_us", "max_us", "sum_us")

    def __init__(self, limit_us: int = EVENT_LOOP_STALL_MS * 1_000) -> None:
        self.limit_us = limit_us
        self.count = 0
        self.max_us = 0
        self.sum_us = 0

    def observe_us(self, late_us: int) -> None:
        """Counts a timer that came `late_us` late, where that is too late."""
        self.max_us = max(self.max_us, late_us)
        if late_us > self.limit_us:
            self.count += 1
            self.sum_us += late_us


def _zero() -> int:
    return 0


def _none() -> Iterable[PartitionStatus]:
    return ()


@dataclass(slots=True)
class Providers:
    """Read at each export; what is not registered counts as 0.

    `partitions` is called on the event loop, the others from any thread: they read one number.
    """

    partitions: Callable[[], Iterable[PartitionStatus]] = _none
    connections: Callable[[], int] = _zero
    refused_connections: Callable[[], int] = _zero
    refused_frames: Callable[[], int] = _zero
    in_flight_bytes: Callable[[], int] = _zero
    commit_cycles: Callable[[], int] = _zero
    commit_bytes: Callable[[], int] = _zero
    commit_disk_us: Callable[[], int] = _zero
    commit_failures: Callable[[], int] = _zero
    compactions: Callable[[], int] = _zero
    compaction_failures: Callable[[], int] = _zero
    compaction_bytes_read: Callable[[], int] = _zero
    compaction_bytes_written: Callable[[], int] = _zero
    trace_dropped: Callable[[], int] = _zero
    is_controller: Callable[[], int] = _zero
    watermarks_warned: Callable[[], int] = _zero
    watermarks_alarmed: Callable[[], int] = _zero
    watermark_behind_max: Callable[[], int] = _zero


class Metrics:
    """All counters of one node. `api` and `topic` return the object to keep, made on first use."""

    __slots__ = (
        "apis",
        "forwarded",
        "node_id",
        "not_leader",
        "providers",
        "rejected",
        "stalls",
        "topics",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.apis: dict[str, ApiCounters] = {}
        self.topics: dict[str, TopicCounters] = {}
        self.rejected: dict[tuple[str, int], int] = {}
        self.forwarded = ByClient()
        self.not_leader = ByClient()
        self.stalls = Stalls()
        self.providers = Providers()

    def api(self, name: str) -> ApiCounters:
        """The counters of an API, by Kafka's name for it (`Produce`)."""
        found = self.apis.get(name)
        if found is None:
            found = self.apis[name] = ApiCounters(name)
        return found

    def topic(self, name: str) -> TopicCounters:
        """The counters of a topic that exists; never call it with a name a client made up."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicCounters()
        return found

    def forget_topic(self, name: str) -> None:
        """The topic was deleted."""
        self.topics.pop(name, None)

    def count_rejected(self, request: str, error_code: int) -> None:
        """A partition of a `Produce` or `Fetch` was answered with an error."""
        key = (request, error_code)
        self.rejected[key] = self.rejected.get(key, 0) + 1

    def count_forwarded(self, request: str, client_id: str | None) -> None:
        """A request went to the partition's leader on another node."""
        self.forwarded.add(request, client_id)

    def count_not_leader(self, request: str, client_id: str | None) -> None:
        """A client was told that another node leads."""
        self.not_leader.add(request, client_id)

    def totals(self) -> Totals:
        """The sums behind the status page's rates."""
        topics = self.topics.values()
        return Totals(
            messages_in=sum(topic.messages_in for topic in topics),
            bytes_in=sum(topic.bytes_in for topic in topics),
            bytes_out=sum(topic.bytes_out for topic in topics),
            requests=sum(sum(api.by_error.values()) for api in self.apis.values()),
        )
