"""Lets the planned faults happen to a simulated Raft cluster."""

from chronik.raft.messages import (
    ConfChange,
    ConfChangeTransition,
    ConfChangeType,
    MemberChange,
    NodeId,
)
from chronik.raft.state import ProposalDropped
from chronik.sim.disk import PowerCutError
from chronik.sim.raft_cluster import RaftCluster
from chronik.sim.raft_faults import Fault
from chronik.sim.raft_node import Machine

VOTERS_MIN = 2
SLOW_DISK_US = 150_000


class Nemesis:
    """Draws a fault now and then, as long as the cluster has faults."""

    def __init__(self, cluster: RaftCluster) -> None:
        self.cluster = cluster
        self.random = cluster.random
        self.actions = {
            Fault.CRASH: self._crash,
            Fault.CRASH_LEADER: self._crash_leader,
            Fault.CRASH_ALL: self._crash_all,
            Fault.CRASH_IN_WRITE: self._crash_in_write,
            Fault.PARTITION: self._partition,
            Fault.ISOLATE_LEADER: self._isolate_leader,
            Fault.ONE_WAY: self._cut_one_way,
            Fault.HEAL: cluster.network.heal,
            Fault.SLOW_DISK: self._slow_disk,
            Fault.CHANGE_MEMBERS: self._change_members,
            Fault.TRANSFER: self._transfer,
            Fault.SNAPSHOT: self._snapshot,
        }

    def begin(self) -> None:
        """Plans the next fault."""
        delay_us = self.random.randrange(2 * self.cluster.plan.fault_every_us)
        self.cluster.clock.after(delay_us, self._strike)

    def _strike(self) -> None:
        if self.cluster.has_faults:
            fault = self.random.choice(self.cluster.plan.faults)
            self.cluster.note(f"fault: {fault.value}")
            self.actions[fault]()
            self.begin()

    def _some(self) -> Machine:
        return self.random.choice(list(self.cluster.machines.values()))

    def _crash(self) -> None:
        self.cluster.crash(self._some(), "fault")

    def _crash_leader(self) -> None:
        leader = self.cluster.leader()
        if leader is not None:
            self.cluster.crash(leader, "leader")

    def _crash_all(self) -> None:
        # Rarely: everything that is only in memory, everywhere, is gone.
        if self.random.randrange(4) == 0:
            for machine in self.cluster.machines.values():
                self.cluster.crash(machine, "all")

    def _crash_in_write(self) -> None:
        self._some().disk.power_cut_after = self.random.randrange(8)

    def _partition(self) -> None:
        ids = list(self.cluster.machines)
        self.random.shuffle(ids)
        size = self.random.randint(1, len(ids) - 1)
        self.cluster.network.heal()
        self.cluster.network.cut(ids[:size], ids[size:])
        self.cluster.note(f"cut {sorted(ids[:size])} | {sorted(ids[size:])}")

    def _isolate_leader(self) -> None:
        # It goes on taking proposals for a while: logs that differ in many entries.
        leader = self.cluster.leader()
        if leader is not None:
            others = [other for other in self.cluster.machines if other != leader.id]
            self.cluster.network.heal()
            self.cluster.network.cut([leader.id], others)
            self.cluster.note(f"cut {leader.id} | {others}")

    def _cut_one_way(self) -> None:
        node = self._some().id
        others = [other for other in self.cluster.machines if other != node]
        if self.random.randrange(2):
            self.cluster.network.cut([node], others, one_way=True)
        else:
            self.cluster.network.cut(others, [node], one_way=True)

    def _slow_disk(self) -> None:
        disks = self.cluster.disk_us_max
        node = self._some().id
        is_slow = disks[node] == SLOW_DISK_US
        disks[node] = self.cluster.plan.disk_us_max if is_slow else SLOW_DISK_US

    def _snapshot(self) -> None:
        machine = self._some()
        try:
            machine.take_snapshot(self.cluster.plan.snapshot_keep)
        except PowerCutError:
            self.cluster.crash(machine, "in the middle of a snapshot")

    def _transfer(self) -> None:
        machine = self._some()
        if machine.node is None:
            return
        try:
            machine.node.transfer_leadership(self._some().id)
        except ProposalDropped:
            return
        self.cluster.moved(machine)

    def _change_members(self) -> None:
        leader = self.cluster.leader()
        if leader is None or leader.node is None:
            return
        change = self._draw_change(leader)
        try:
            leader.node.propose_conf_change(change)
        except ProposalDropped:
            return
        self.cluster.note(f"{leader.id} proposes {change}")
        self.cluster.moved(leader)

    def _draw_change(self, leader: Machine) -> ConfChange:
        assert leader.node is not None
        conf = leader.node.conf_state
        if conf.voters_outgoing and not conf.auto_leave:
            return ConfChange()
        changes = self._draw_swap(leader) if self.random.randrange(2) else ()
        if not changes:
            changes = tuple(self._draw_member(leader) for _ in range(self.random.choice((1, 2))))
        voters = set(conf.voters)
        for one in changes:
            voters -= {one.node_id}
            voters |= {one.node_id} if one.type is ConfChangeType.ADD_VOTER else set()
        if len(voters) < VOTERS_MIN:
            return ConfChange()
        return ConfChange(changes, self.random.choice(list(ConfChangeTransition)))

    def _draw_swap(self, leader: Machine) -> tuple[MemberChange, ...]:
        """All learners in, as many voters out: majorities that need not share a member."""
        assert leader.node is not None
        conf = leader.node.conf_state
        learners = [node for node in conf.learners if self._knows_cluster(leader, node)]
        leaving = self.random.sample(conf.voters, min(len(learners), len(conf.voters) - 1))
        return tuple(MemberChange(ConfChangeType.ADD_VOTER, node) for node in learners) + tuple(
            MemberChange(ConfChangeType.REMOVE, node) for node in leaving
        )

    def _knows_cluster(self, leader: Machine, node: NodeId) -> bool:
        """As an operator sees it: it has acknowledged, so it has the members on its disk.

        One that has them in memory only may crash, and as an empty node it gives no vote.
        """
        assert leader.node is not None
        progress = leader.node.state.progress.get(node)
        return progress is not None and progress.match > 0

    def _draw_member(self, leader: Machine) -> MemberChange:
        """Empty machines become learners first: only who knows the cluster gives votes."""
        machine = self._some()
        if not self._knows_cluster(leader, machine.id):
            return MemberChange(ConfChangeType.ADD_LEARNER, machine.id)
        return MemberChange(self.random.choice(list(ConfChangeType)), machine.id)
