"""The arrows of the data path, one kind each, and the row that every event is.

Loss is a missing arrow: join two kinds on (topic, partition, base_offset) and look for the rows
that have no partner. Two things that look like loss are events themselves: `DROPPED` and `EXPIRED`.
"""

from enum import IntEnum
from typing import NamedTuple


class EventKind(IntEnum):
    """One kind per arrow. The numbers are in files: they are never changed or used again."""

    STARTED = 1
    """The tracer opened. Without a `STOPPED` before it, the last flush interval may be missing."""
    STOPPED = 2
    """The tracer closed in order; every event before it is in the files."""
    DROPPED = 3
    """`record_count` events are missing here; `detail` says why."""
    EXPIRED = 4
    """A trace file of `bytes` was deleted to keep the total bound; `detail` is its name."""

    RECEIVED = 10
    """A batch of a Produce request came off the socket, at `mono_ns`; it has no offset yet."""
    APPENDED = 11
    """The leader gave the batch its offsets: base_offset, last_offset, leader_epoch, log_end."""
    FSYNCED = 12
    """The log is durable up to `log_end`; `duration_us` is the disk's part."""
    REPLICATED = 13
    """Follower `peer` has fsynced up to `log_end`: what its fetch told the leader."""
    WATERMARK = 14
    """The high watermark moved to `high_watermark`."""
    ACKED = 15
    """The answer of a Produce was handed to the socket; `duration_us` since `RECEIVED`."""
    REJECTED = 16
    """A batch or a fetch was refused with `error_code`."""
    FORWARDED = 17
    """A request for a partition led elsewhere went to `peer`."""
    FOLLOWER_APPENDED = 18
    """A follower appended a batch that it fetched from `peer`."""
    TRUNCATED = 19
    """A replica cut its log back to `log_end` (KIP-101)."""

    FETCH_START = 20
    """A fetch of one partition began at `base_offset`; `peer` is the follower, or null."""
    FETCH_WATERMARK = 21
    """The fetch compared its offset with `high_watermark` and `log_end`."""
    FETCH_DATA = 22
    """Data is available for the fetch: base_offset to last_offset."""
    FETCH_EMPTY = 23
    """No data within the wait; `duration_us` waited."""
    FETCH_SERVED = 24
    """`bytes` were handed to the socket; `duration_us` since `FETCH_START`."""

    ISR_CHANGE = 30
    """The in-sync set changed; `detail` is the new set, for instance `1,2,3`."""
    ELECTION = 31
    """`peer` (-1: nobody) leads the partition, or the metadata log, in `leader_epoch`."""
    ERROR = 32
    """An unexpected exception; `detail` holds the trace id that the log line has too."""
    WATERMARK_BEHIND = 33
    """The leader's log end stays ahead of the watermark; `detail` is `warn`, `alarm`, or `ok`."""


Row = tuple[int | str | None, ...]
"""One event in the order of `TraceEvent`; a plain tuple, made once per batch and arrow."""


class TraceEvent(NamedTuple):
    """One row. All but the first four may be null; the order is the schema's."""

    time_ns: int
    """Wall clock of the node: comparable between nodes as far as their clocks are.

    It is `mono_ns` and what the wall clock was ahead of it when the event was taken from the queue,
    a flush interval later at most: where somebody sets the clock, events just before have the new
    time. Events about the trace itself look at it when they happen."""
    mono_ns: int
    """Monotonic clock of the process: exact order and distance within one run of one node."""
    node: int
    kind: int
    topic: str | None = None
    partition: int | None = None
    leader_epoch: int | None = None
    base_offset: int | None = None
    last_offset: int | None = None
    record_count: int | None = None
    bytes: int | None = None
    high_watermark: int | None = None
    log_end: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None
    acks: int | None = None
    client_id: str | None = None
    connection_id: int | None = None
    correlation_id: int | None = None
    peer: int | None = None
    """The other node: follower, new leader, or the leader forwarded to."""
    error_code: int | None = None
    duration_us: int | None = None
    detail: str | None = None


def trace_id(node: int, connection_id: int, correlation_id: int) -> str:
    """Names one request in log lines and in `detail`; its parts are columns of its events."""
    return f"{node}-{connection_id}-{correlation_id}"
