"""What a driver decides about a node before it starts."""

from dataclasses import dataclass
from enum import Enum

from chronik.raft.messages import NodeId


class ReadMode(Enum):
    """How a leader makes sure that it still leads before it answers a read (thesis 6.4)."""

    QUORUM = "quorum"
    """Asks a majority. Right whatever the clocks do."""
    LEASE = "lease"
    """Trusts the last check of the quorum: no round trip, wrong if clocks drift too far."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Times are counted in ticks; what a tick lasts is the driver's business."""

    node_id: NodeId
    election_ticks: int = 10
    heartbeat_ticks: int = 1
    pre_vote: bool = True
    check_quorum: bool = True
    read_mode: ReadMode = ReadMode.QUORUM
    forward_proposals: bool = True
    message_bytes_max: int = 1024 * 1024
    """Entries in one AppendEntries; a single larger entry still goes."""
    inflight_messages_max: int = 256
    inflight_bytes_max: int = 64 * 1024 * 1024
    uncommitted_bytes_max: int = 64 * 1024 * 1024
    """Above it proposals are dropped: a leader without its quorum must not fill the memory."""
    committed_bytes_per_ready_max: int = 16 * 1024 * 1024
    pending_reads_max: int = 10_000
    snapshot_resend_ticks: int = 100
    """A snapshot not confirmed for so long is taken as lost and the follower probed again."""

    def __post_init__(self) -> None:
        if self.node_id < 0:
            raise ValueError(f"node id {self.node_id} is negative")
        if not 0 < self.heartbeat_ticks < self.election_ticks:
            raise ValueError("heartbeat_ticks must be above 0 and below election_ticks")
        if self.read_mode is ReadMode.LEASE and not self.check_quorum:
            raise ValueError("lease reads need check_quorum: nothing else ends the lease")
        if min(self.inflight_messages_max, self.message_bytes_max, self.inflight_bytes_max) <= 0:
            raise ValueError("flow control limits must be above 0")
