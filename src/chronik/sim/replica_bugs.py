"""Known mistakes of replication, planted from outside, to prove that the simulator finds them."""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from chronik.broker.partition import Partition
from chronik.model.errors import ErrorCode
from chronik.replica.state import ReplicaState
from chronik.storage.operations import Reset, Truncation
from chronik.storage.write import Write


class _WatermarkEarly(ReplicaState):
    """Commits what is on the leader's own disk, whatever the followers have."""

    __slots__ = ()

    @override
    def _recompute_watermark(self) -> bool:
        return self._advance_watermark(self.durable_end)


class _CountsUnsynced(Partition):
    """Takes what it shows its followers for durable."""

    __slots__ = ()

    @override
    def expose(self, write: Write) -> None:
        super().expose(write)
        self.state.made_durable(self.log.end_offset)


class _TakesBack(Partition):
    """Cuts off what its disk refused, although followers may have it: the offsets are free."""

    __slots__ = ()

    @override
    def refused(self, write: Write, code: ErrorCode) -> None:
        super().refused(write, code)
        if write.exposed:
            self.log.unsynced = None
            cut = self.log.truncate_to(write.base_offset)
            self._insist(cut)
            self.log.apply(cut)
            self._pending, self._writing = self._writing, []
            self.refuse_pending(code)

    def _insist(self, cut: Truncation | Reset) -> None:
        while True:
            try:
                return cut.execute()
            except OSError:
                continue


class _SyncsAlone(Partition):
    """Repeats a failed sync without the bytes that it was for."""

    __slots__ = ()

    @override
    def refused(self, write: Write, code: ErrorCode) -> None:
        super().refused(write, code)
        write.sync_failed = False


@dataclass(frozen=True, slots=True)
class ReplicaBuild:
    """What a simulated replica is made of."""

    state_type: type[ReplicaState] = ReplicaState
    partition_type: type[Partition] = Partition
    registers_anew: bool = True
    """A process that starts gets another broker epoch, and what it led another leader epoch."""
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
    "leader-counts-unsynced": ReplicaBuild(partition_type=_CountsUnsynced),
    "same-epoch-after-crash": ReplicaBuild(registers_anew=False),
    "offsets-used-again": ReplicaBuild(partition_type=_TakesBack),
    "sync-without-bytes": ReplicaBuild(partition_type=_SyncsAlone),
}
