"""A whole Raft cluster from one seed: real cores and stores, simulated disks, network and clocks.

`run(seed, nodes, steps)` lets `steps` events happen under faults, with clients that propose and
read, and checks the invariants after each. Then all faults end, and the cluster must become whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from chronik.sim.clock import Clock, DriftingTimer
from chronik.sim.network import Network
from chronik.sim.raft_bugs import build_with
from chronik.sim.raft_cluster import RaftCluster
from chronik.sim.raft_faults import draw_plan
from chronik.sim.raft_invariants import InvariantViolated, Judge
from chronik.sim.raft_nemesis import Nemesis
from chronik.sim.raft_node import Machine
from chronik.sim.report import Report

TICK_US = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftReport(Report):
    """Of a metadata log and its voters."""

    terms: int
    reads: int

    def counts(self) -> dict[str, int]:
        """The metadata log's own, too."""
        return Report.counts(self) | {"terms": self.terms, "reads": self.reads}


def build(seed: int, nodes: int, bugs: Sequence[str] = ()) -> RaftCluster:
    """The world of one seed, before anything has happened."""
    random = Random(seed)
    plan = draw_plan(random, nodes)
    judge = Judge()
    made = build_with(bugs)
    machines = {
        node: Machine(plan.config_of(node), made, plan.segment_bytes, judge, random)
        for node in plan.ids
    }
    timers = {node: DriftingTimer(random, TICK_US, plan.drift_percent) for node in plan.ids}
    network = Network(random, plan.network)
    disks = dict.fromkeys(plan.ids, plan.disk_us_max)
    return RaftCluster(plan, random, Clock(), network, judge, machines, timers, disks)


def run(seed: int, nodes: int = 3, steps: int = 3_000, bugs: Sequence[str] = ()) -> RaftReport:
    """One run; the same arguments give the same report."""
    world = build(seed, nodes, bugs)
    finding = ""
    try:
        _play(world, steps)
    except (AssertionError, ValueError, LookupError) as error:
        # InvariantViolated, or an error of the code under test: both are findings.
        finding = str(error) if isinstance(error, InvariantViolated) else repr(error)
    return RaftReport(
        seed=seed,
        nodes=nodes,
        steps=steps,
        bugs=tuple(bugs),
        finding=finding,
        trace=tuple(world.trace),
        terms=len(world.judge.leaders),
        committed=len(world.judge.committed),
        acked=len(world.judge.acked),
        reads=world.judge.reads_checked,
        restarts=world.restarts,
        simulated_us=world.clock.now_us,
    )


def _play(world: RaftCluster, steps: int) -> None:
    nemesis = Nemesis(world)
    for machine in world.machines.values():
        world.start(machine)
    world.propose()
    world.read()
    nemesis.begin()
    for _ in range(steps):
        world.clock.step()
    world.recover()
