"""The machines of a simulated Raft cluster, their network, their clients, and time between them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from chronik.raft.codec import decode_message, encode_message
from chronik.raft.core import Ready
from chronik.raft.log import LogDamaged
from chronik.raft.messages import Message, NodeId
from chronik.raft.state import ProposalDropped, Role
from chronik.sim.clock import Clock, DriftingTimer
from chronik.sim.disk import PowerCutError
from chronik.sim.network import Network, NetworkFaults
from chronik.sim.raft_faults import Plan
from chronik.sim.raft_invariants import InvariantViolated, Judge
from chronik.sim.raft_node import Machine
from chronik.storage.raft_store import RaftStoreDamaged

TRACE_EVENTS = 60
RECOVERY_US_MAX = 20_000_000
"""A cluster without faults has so much of its own time to become whole."""


@dataclass(slots=True)
class RaftCluster:
    """Machines, network, clients and time. Everything that happens goes through `note`."""

    plan: Plan
    random: Random
    clock: Clock
    network: Network
    judge: Judge
    machines: dict[NodeId, Machine]
    timers: dict[NodeId, DriftingTimer]
    disk_us_max: dict[NodeId, int]
    trace: deque[str] = field(default_factory=lambda: deque(maxlen=TRACE_EVENTS))
    restarts: int = 0
    values: int = 0
    has_faults: bool = True
    has_clients: bool = True

    def note(self, text: str) -> None:
        """One line of the trace."""
        self.trace.append(f"{self.clock.now_us / 1000:10.3f} ms  {text}")

    # ---- machines

    def start(self, machine: Machine) -> None:
        """Power on; a disk that only lost power must be readable."""
        bootstrap = self.plan.bootstrap if machine.id < self.plan.voters else None
        try:
            machine.start(bootstrap)
        except (RaftStoreDamaged, LogDamaged) as error:
            raise InvariantViolated(f"{machine.id} cannot start: {error}") from error
        except PowerCutError:
            self._power_off(machine, "while it starts")
            return
        assert machine.node is not None
        self.restarts += 1
        log = machine.node.state.log
        self.note(f"{machine.id} starts, term {machine.node.term}, log to {log.last_index}")
        self.after(machine, self.timers[machine.id].next_us(), lambda: self.tick(machine))

    def crash(self, machine: Machine, reason: str) -> None:
        """Power off, and on again after a while."""
        if machine.node is not None:
            self._power_off(machine, reason)

    def _power_off(self, machine: Machine, reason: str) -> None:
        self.note(f"{machine.id} crashes ({reason})")
        machine.stop()
        delay_us = self.random.randrange(self.plan.restart_us_max)
        self.clock.after(delay_us, lambda: self.revive(machine))

    def revive(self, machine: Machine) -> None:
        """Power on, if it is still off."""
        if machine.node is None:
            self.start(machine)

    def after(self, machine: Machine, delay_us: int, action: Callable[[], None]) -> None:
        """Plans something that a crash of the machine undoes."""
        life = machine.life

        def happen() -> None:
            if machine.node is not None and machine.life == life:
                action()

        self.clock.after(delay_us, happen)

    def tick(self, machine: Machine) -> None:
        """One tick of the machine's own clock."""
        assert machine.node is not None
        machine.node.tick()
        self.moved(machine)
        self.after(machine, self.timers[machine.id].next_us(), lambda: self.tick(machine))

    def moved(self, machine: Machine) -> None:
        """A machine has changed: judge it, and let it work."""
        assert machine.node is not None
        self.judge.check(machine.node)
        ready = machine.begin()
        if ready is None:
            return
        self._note_ready(machine, ready)
        if machine.build.sends_before_save:
            machine.send(ready, self.send)
        is_write = ready.hard_state is not None or ready.entries or ready.snapshot is not None
        delay_us = self.random.randrange(self.disk_us_max[machine.id]) if is_write else 0
        self.after(machine, delay_us, lambda: self.written(machine, ready))

    def written(self, machine: Machine, ready: Ready) -> None:
        """The disk gets the bytes now, and answers."""
        try:
            machine.finish(ready, self.send)
        except PowerCutError:
            self.crash(machine, "in the middle of a write")
            return
        self.moved(machine)

    def _note_ready(self, machine: Machine, ready: Ready) -> None:
        if ready.soft_state is not None:
            assert machine.node is not None
            role, leader = ready.soft_state.role.value, ready.soft_state.leader
            self.note(f"{machine.id} is {role} in term {machine.node.term}, leader {leader}")
        if ready.entries:
            first, last = ready.entries[0], ready.entries[-1]
            self.note(f"{machine.id} writes {first.term}/{first.index} to {last.term}/{last.index}")
        if ready.snapshot is not None:
            self.note(f"{machine.id} installs snapshot {ready.snapshot.index}")
        if ready.committed_entries:
            self.note(f"{machine.id} commits to {ready.committed_entries[-1].index}")

    # ---- network

    def send(self, message: Message) -> None:
        """Puts a message on the network, as bytes."""
        data = encode_message(message)
        for delay_us in self.network.arrivals_us(message.sender, message.to):
            self.clock.after(delay_us, lambda: self.arrive(data))

    def arrive(self, data: bytes) -> None:
        """A message reaches its machine, if that is on."""
        message = decode_message(data)
        machine = self.machines[message.to]
        if machine.node is None or self.network.is_cut(message.sender, message.to):
            return
        machine.node.step(message)
        self.moved(machine)

    # ---- clients

    def propose(self) -> None:
        """A client writes a new value through some node."""
        if not self.has_clients:
            return
        machine = self.random.choice(list(self.machines.values()))
        if machine.node is not None:
            self.values += 1
            value = b"value-%d" % self.values
            try:
                machine.node.propose(value)
            except ProposalDropped:
                pass
            else:
                machine.proposals.add(value)
                self.moved(machine)
        self.clock.after(self.random.randrange(2 * self.plan.propose_every_us), self.propose)

    def read(self) -> None:
        """A client reads through some node."""
        if not self.has_clients:
            return
        machine = self.random.choice(list(self.machines.values()))
        if machine.node is not None:
            self.values += 1
            context = b"read-%d" % self.values
            machine.reads[context] = self.judge.acked_index_max
            try:
                machine.node.read_index(context)
            except ProposalDropped:
                del machine.reads[context]
            else:
                self.moved(machine)
        self.clock.after(self.random.randrange(2 * self.plan.read_every_us), self.read)

    # ---- the run

    def leader(self) -> Machine | None:
        """The leader of the highest term among the machines that are on."""
        leaders = [
            (machine.node.term, machine)
            for machine in self.machines.values()
            if machine.node is not None and machine.node.role is Role.LEADER
        ]
        return max(leaders, key=lambda pair: pair[0])[1] if leaders else None

    def recover(self) -> None:
        """All faults end: a leader must emerge, commit, and everybody must catch up."""
        self.note("all faults end")
        self.has_faults = False
        self.network.faults = NetworkFaults(0, 0, 1_000, 0)
        self.network.heal()
        self.disk_us_max = dict.fromkeys(self.machines, 200)
        for machine in self.machines.values():
            machine.disk.power_cut_after = None
            self.revive(machine)
        acked = len(self.judge.acked)
        self._wait_until(lambda: len(self.judge.acked) > acked, "nothing is acknowledged")
        self.has_clients = False
        self._wait_until(self._is_whole, "somebody does not catch up")
        self.judge.check_nothing_lost()

    def _wait_until(self, condition: Callable[[], bool], problem: str) -> None:
        end_us = self.clock.now_us + RECOVERY_US_MAX
        while not condition():
            for _ in range(20):
                self.clock.step()
            if self.clock.now_us > end_us:
                raise InvariantViolated(f"all faults have ended, yet {problem}")

    def _is_whole(self) -> bool:
        leader = self.leader()
        if leader is None or leader.node is None:
            return False
        conf = leader.node.conf_state
        members = {*conf.voters, *conf.voters_outgoing, *conf.learners}
        applied = {self.machines[node].applied for node in members}
        return applied == {leader.applied} and leader.applied >= self.judge.acked_index_max
