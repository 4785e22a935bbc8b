"""One partition and its replicas from one seed: real logs, roles and metadata, simulated machines.

`run(seed, nodes, steps)` lets `steps` events happen under faults, with clients that produce, and
checks after each what `replica_judge` knows. Then all faults end: every replica must be in sync.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from chronik.sim.raft_invariants import InvariantViolated
from chronik.sim.replica_bugs import REPLICA_BUGS, ReplicaBuild
from chronik.sim.replica_cluster import PartitionCluster
from chronik.sim.replica_nemesis import ReplicaNemesis
from chronik.sim.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaReport(Report):
    """Of a partition and its replicas."""

    world: ClassVar[str] = "--world partition "

    epochs: int

    def counts(self) -> dict[str, int]:
        """The partition's own, too."""
        return Report.counts(self) | {"leader epochs": self.epochs}


def run(seed: int, nodes: int = 3, steps: int = 3_000, bugs: Sequence[str] = ()) -> ReplicaReport:
    """One run; the same arguments give the same report."""
    cluster = PartitionCluster(seed, nodes, REPLICA_BUGS[bugs[0]] if bugs else ReplicaBuild())
    nemesis = ReplicaNemesis(cluster)
    finding = ""
    try:
        cluster.begin()
        nemesis.begin()
        for _ in range(steps):
            cluster.clock.step()
        cluster.recover()
    except (AssertionError, ValueError, LookupError) as error:
        finding = str(error) if isinstance(error, InvariantViolated) else repr(error)
    return ReplicaReport(
        seed=seed,
        nodes=nodes,
        steps=steps,
        bugs=tuple(bugs),
        finding=finding,
        trace=tuple(cluster.trace),
        epochs=len(cluster.judge.leaders),
        committed=len(cluster.judge.committed),
        acked=len(cluster.judge.acked),
        restarts=cluster.restarts,
        simulated_us=cluster.clock.now_us,
    )
