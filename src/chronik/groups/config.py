"""What an operator may set; defaults are those of Kafka's `group.*` and `offsets.*` keys."""

from dataclasses import dataclass

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of one coordinator; they hold for all its groups."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    """An empty group waits this long for more members, and again while they keep coming."""
    group_size_max: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000
    """A parked first join ends after this time: its client may be gone and cannot be heard."""
    offset_metadata_length_max: int = 4_096
    offsets_retention_ms: int = 7 * _DAY_MS
    offsets_retention_check_interval_ms: int = 600_000
    expired_offsets_per_group_max: int = 1_000
    """Tombstones per group and round of expiry, so that one write stays below a batch's size."""
