"""Known mistakes of replication, planted from outside, to prove that the simulator finds them."""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from chronik.replica.state import ReplicaState


class _WatermarkEarly(ReplicaState):
    """Commits what is on the leader's own disk, whatever the followers have."""

    __slots__ = ()

    @override
    def _recompute_watermark(self) -> bool:
        return self._advance_watermark(self.durable_end)


@dataclass(frozen=True, slots=True)
class ReplicaBuild:
    """What a simulated replica is made of."""

    state_type: type[ReplicaState] = ReplicaState
    asks_from_durable_end: bool = True
    """Asking is acknowledging: a follower asks from what its disk has."""
    names_divergence: bool = True
    """A leader tells a follower where their logs part (KIP-595)."""
    counts_proposed_isr: bool = True
    """Who is about to join the ISR counts for the watermark already (KIP-497)."""


REPLICA_BUGS: Final[dict[str, ReplicaBuild]] = {
    "watermark-early": ReplicaBuild(state_type=_WatermarkEarly),
    "ack-before-sync": ReplicaBuild(asks_from_durable_end=False),
    "keep-divergence": ReplicaBuild(names_divergence=False),
    "isr-not-maximal": ReplicaBuild(counts_proposed_isr=False),
}
