"""What an operator wants to know about a node, as plain values for the status page."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

HISTORY_SECONDS = 120
"""Samples kept for rates and the page's curves, one a second."""
RATE_WINDOW = 10
"""Seconds over which a rate is averaged."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One replica that this node holds."""

    topic: str
    partition: int
    leader: int
    """Node id; -1 where there is none."""
    leader_epoch: int
    log_start: int
    log_end: int
    high_watermark: int
    size_bytes: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()

    @property
    def under_replicated(self) -> bool:
        """Fewer replicas in sync than assigned."""
        return len(self.in_sync) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class ListenerStatus:
    """One address that clients may use."""

    name: str
    bound: str
    advertised: str


@dataclass(frozen=True, slots=True)
class Health:
    """Healthy while there are no reasons against it."""

    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where a load balancer may send clients."""
        return not self.reasons


class Totals(NamedTuple):
    """The counters that the page shows as rates."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0


class Rates(NamedTuple):
    """`Totals` per second."""

    messages_in: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    requests: float = 0.0


class History:
    """A ring of samples, from which rates are taken."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Totals]] = deque(maxlen=HISTORY_SECONDS + 1)

    def add(self, mono_ns: int, totals: Totals) -> None:
        """One sample; called about once a second."""
        self._samples.append((mono_ns, totals))

    def now(self) -> Rates:
        """Rates over the last `RATE_WINDOW` samples."""
        if len(self._samples) < 2:
            return Rates()
        first = self._samples[max(0, len(self._samples) - 1 - RATE_WINDOW)]
        return _rates(first, self._samples[-1])

    def curve(self) -> tuple[Rates, ...]:
        """Rates between neighbours, oldest first."""
        samples = list(self._samples)
        return tuple(map(_rates, samples, samples[1:]))


def _rates(first: tuple[int, Totals], last: tuple[int, Totals]) -> Rates:
    seconds = max(1, last[0] - first[0]) / 1e9
    return Rates._make((b - a) / seconds for a, b in zip(first[1], last[1], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One look at one node. The lists may be cut by the reader, never the counts."""

    node_id: int
    cluster_id: str
    version: str
    uptime_s: float
    health: Health = field(default_factory=Health)
    listeners: tuple[ListenerStatus, ...] = ()
    controller: int = -1
    brokers: tuple[int, ...] = ()
    partitions: tuple[PartitionStatus, ...] = ()
    connections: int = 0
    in_flight_bytes: int = 0
    rates: Rates = field(default_factory=Rates)
    curve: tuple[Rates, ...] = ()
    stalls: int = 0
    stall_s_max: float = 0.0
    durability: str = "fsync"
    commit_cycles: int = 0
    commit_ms_mean: float = 0.0
    trace_mode: str = "off"
    trace_dropped: int = 0
