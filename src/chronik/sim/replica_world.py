"""One partition and its replicas from one seed: real logs, roles and metadata, simulated machines.

`run(seed, nodes, steps)` lets `steps` events happen under faults, with clients that produce, and
checks after each what `replica_judge` knows. Then all faults end: every replica must be in sync.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chronik.sim.raft_invariants import InvariantViolated
from chronik.sim.replica_bugs import REPLICA_BUGS, ReplicaBuild
from chronik.sim.replica_cluster import PartitionCluster
from chronik.sim.replica_nemesis import ReplicaNemesis


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a run was and what it found."""

    seed: int
    nodes: int
    steps: int
    bugs: tuple[str, ...]
    finding: str
    trace: tuple[str, ...]
    epochs: int
    committed: int
    acked: int
    restarts: int
    simulated_us: int

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.finding

    @property
    def command(self) -> str:
        """What repeats this run."""
        bug = "".join(f" --bug {name}" for name in self.bugs)
        words = f"--seed {self.seed} --nodes {self.nodes} --steps {self.steps}"
        return f"chronik simulate --world partition {words}{bug}"


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
