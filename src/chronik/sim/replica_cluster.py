"""The replicas of one partition, their controller, their clients, and the way between them.

The controller is one that does not fail: its own log is what `raft_world` is about. What goes wrong
is the nemesis's part; what must hold is the judge's.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TypeVar

from chronik.cluster.apply import apply
from chronik.cluster.commands import (
    AlterPartition,
    BrokerHeartbeat,
    Command,
    ControllerSettings,
    CreateCluster,
    CreateTopics,
    FenceBroker,
    NewTopic,
    RegisterBroker,
)
from chronik.cluster.decide import decide
from chronik.cluster.image import EMPTY, ClusterImage, Endpoint
from chronik.sim.clock import Clock
from chronik.sim.disk import PowerCutError
from chronik.sim.network import Network, NetworkFaults
from chronik.sim.raft_invariants import InvariantViolated
from chronik.sim.replica_bugs import ReplicaBuild
from chronik.sim.replica_judge import ReplicaJudge
from chronik.sim.replica_machine import TOPIC, Answer, Fetch, ReplicaMachine

R = TypeVar("R")
CONTROLLER = 99
TOPIC_ID = b"\x01" * 16
SESSION_US = 200_000
REPORT_US = 20_000
RETRY_US = 30_000
RECOVERY_US_MAX = 20_000_000
TRACE_EVENTS = 60
QUIET = NetworkFaults(0, 0, 1_000, 0)


class PartitionCluster:
    """Machines, controller, network, clients and time."""

    def __init__(self, seed: int, nodes: int, build: ReplicaBuild) -> None:
        self.random = Random(seed)
        self.clock = Clock()
        self.judge = ReplicaJudge()
        self.network = Network(self.random, self._draw_network())
        self.machines = {
            one: ReplicaMachine(one, build, self.random) for one in range(1, nodes + 1)
        }
        self.fault_every_us = self.random.choice((15_000, 60_000, 200_000))
        self.restart_us_max = self.random.choice((20_000, 300_000))
        self.produce_every_us = self.random.choice((2_000, 10_000))
        self.disk_us = dict.fromkeys(self.machines, self.random.choice((300, 4_000)))
        self.trace: deque[str] = deque(maxlen=TRACE_EVENTS)
        self.image: ClusterImage = EMPTY
        self.heard_us: dict[int, int] = {}
        self.has_faults = True
        self.values = self.restarts = 0

    def _draw_network(self) -> NetworkFaults:
        return NetworkFaults(
            loss_percent=self.random.choice((0, 2, 10)),
            duplicate_percent=self.random.choice((0, 3)),
            delay_us_max=self.random.choice((500, 5_000)),
            straggler_percent=self.random.choice((0, 3)),
        )

    # -- the controller

    @property
    def now_ms(self) -> int:
        return self.clock.now_us // 1000

    def note(self, text: str) -> None:
        self.trace.append(f"{self.clock.now_us / 1000:10.3f} ms  {text}")

    def decide(self, command: Command[R]) -> R:
        """Decided and durable at once."""
        decision = decide(self.image, command, ControllerSettings())
        if decision.records:
            self.image = apply(self.image, decision.records, self.image.version + 1)
            if TOPIC in self.image.topics:
                state = self.image.topics[TOPIC].partitions[0]
                self.note(f"leader {state.leader} in epoch {state.leader_epoch}, ISR {state.isr}")
        return decision.result

    def begin(self) -> None:
        """A new cluster with its topic, all nodes on."""
        self.decide(CreateCluster("simulated"))
        for machine in self.machines.values():
            self._register(machine)
        topic = NewTopic(TOPIC, TOPIC_ID, 1, len(self.machines))
        (created,) = self.decide(CreateTopics((topic,)))
        assert not created.error.failed, created.error
        for machine in self.machines.values():
            self.power_on(machine)
        self._watch_sessions()
        self._produce()

    def _register(self, machine: ReplicaMachine) -> None:
        # A process that starts is another one, and draws another number; as the mistake, it isn't.
        life = machine.life if machine.build.registers_anew else 0
        incarnation = life.to_bytes(16, "big")
        answer = self.decide(
            RegisterBroker(machine.id, incarnation, (Endpoint("PEER", "sim", machine.id),))
        )
        assert not answer.error.failed, answer.error
        machine.broker_epoch = answer.epoch
        self._heard(machine)

    def _heard(self, machine: ReplicaMachine) -> None:
        self.heard_us[machine.id] = self.clock.now_us
        if not self.image.brokers[machine.id].live:
            self.decide(BrokerHeartbeat(machine.id, machine.broker_epoch))

    def _watch_sessions(self) -> None:
        for broker in list(self.image.brokers.values()):
            if broker.live and self.clock.now_us - self.heard_us[broker.id] > SESSION_US:
                self.note(f"{broker.id} is silent")
                self.decide(FenceBroker(broker.id, broker.epoch))
        self.clock.after(SESSION_US // 8, self._watch_sessions)

    def _is_reachable(self, machine: ReplicaMachine) -> bool:
        cut = self.network.is_cut
        return not cut(machine.id, CONTROLLER) and not cut(CONTROLLER, machine.id)

    # -- machines

    def after(self, machine: ReplicaMachine, delay_us: int, action: Callable[[], None]) -> None:
        """Plans something that a crash of the machine undoes."""
        life = machine.life

        def happen() -> None:
            if machine.is_on and machine.life == life:
                action()

        self.clock.after(delay_us, happen)

    def power_on(self, machine: ReplicaMachine) -> None:
        """Starts; it takes part as soon as it is registered."""
        if machine.is_on:
            return
        machine.is_on, machine.life = True, machine.life + 1
        self.restarts += 1
        self.note(f"{machine.id} starts")
        self._report(machine)
        self._fetch(machine)
        self._watch_followers(machine)

    def crash(self, machine: ReplicaMachine) -> None:
        """Power off, and on again after a while."""
        if machine.is_on:
            self.note(f"{machine.id} crashes")
            machine.power_off()
            self.clock.after(
                self.random.randrange(self.restart_us_max), lambda: self.power_on(machine)
            )

    def _report(self, machine: ReplicaMachine) -> None:
        """Registers, tells the controller that it lives, and learns what was decided."""
        if self._is_reachable(machine):
            try:
                if machine.partition is None:
                    self._register(machine)
                    machine.open(self.image, self.now_ms)
            except (PowerCutError, OSError):
                self.crash(machine)
                return
            self._heard(machine)
            self._send_proposal(machine)
            image = self.image
            self.after(machine, self._delay_us(), lambda: self._learn(machine, image))
        self.after(machine, self.random.randrange(1, REPORT_US), lambda: self._report(machine))

    def _learn(self, machine: ReplicaMachine, image: ClusterImage) -> None:
        machine.learn(image, self.now_ms)
        self.moved(machine)

    def _send_proposal(self, machine: ReplicaMachine) -> None:
        proposal = machine.proposal
        if proposal is None:
            return
        self.decide(AlterPartition(machine.id, machine.broker_epoch, (proposal,)))
        image = self.image

        def settle() -> None:
            machine.learn(image, self.now_ms)
            machine.settle(proposal, self.now_ms)
            self.moved(machine)

        # The answer may be lost: then the same proposal is sent, and refused, again.
        if self.random.randrange(100) >= self.network.faults.loss_percent:
            self.after(machine, self._delay_us(), settle)

    def _delay_us(self) -> int:
        return self.random.randrange(self.network.faults.delay_us_max)

    def _watch_followers(self, machine: ReplicaMachine) -> None:
        machine.propose_leaving(self.now_ms)
        if machine.partition is not None:
            # As the checkpoint of watermarks is: now and then, never ahead.
            machine.watermark_checkpoint = machine.partition.state.high_watermark
        self.after(machine, 50_000, lambda: self._watch_followers(machine))

    def moved(self, machine: ReplicaMachine) -> None:
        """A machine has changed: judge it, and let its disk work."""
        self.judge.check(machine, self._isr_of(machine))
        try:
            execute = machine.begin_write(self.now_ms)
        except PowerCutError:
            self.crash(machine)
            return
        if execute is not None:
            delay_us = self.random.randrange(self.disk_us[machine.id])
            self.after(machine, delay_us, lambda: self._write(machine, execute))

    def _isr_of(self, machine: ReplicaMachine) -> list[ReplicaMachine]:
        """As the controller has it, if the machine is the leader that it has."""
        state = self.image.topics[TOPIC].partitions[0]
        partition = machine.partition
        if partition is None or partition.state.leader_epoch != state.leader_epoch:
            return []
        return [self.machines[one] for one in state.isr]

    def _write(self, machine: ReplicaMachine, execute: Callable[[], None]) -> None:
        try:
            execute()
        except PowerCutError:
            self.crash(machine)
            return
        self.moved(machine)

    # -- replication

    def _fetch(self, machine: ReplicaMachine) -> None:
        fetch = machine.fetch()
        if fetch is not None:
            for delay_us in self.network.arrivals_us(fetch.sender, fetch.to):
                self.clock.after(delay_us, lambda: self._arrive(fetch))
        # Answered or not: the next question comes.
        pause_us = self.random.randrange(500, RETRY_US)
        self.after(machine, pause_us, lambda: self._fetch(machine))

    def _arrive(self, fetch: Fetch) -> None:
        leader = self.machines[fetch.to]
        if not leader.is_on or self.network.is_cut(fetch.sender, fetch.to):
            return
        answer = leader.serve(fetch, self.now_ms)
        self.moved(leader)
        if answer is not None:
            for delay_us in self.network.arrivals_us(fetch.to, fetch.sender):
                self.clock.after(delay_us, lambda: self._answered(fetch, answer))

    def _answered(self, fetch: Fetch, answer: Answer) -> None:
        machine = self.machines[answer.to]
        if not machine.is_on or self.network.is_cut(fetch.to, fetch.sender):
            return
        try:
            machine.take(answer)
        except (PowerCutError, OSError):
            self.crash(machine)
            return
        self.moved(machine)

    # -- clients

    def _produce(self) -> None:
        machine = self.random.choice(list(self.machines.values()))
        self.values += 1
        value = b"value-%d;" % self.values

        def acked(offset: int) -> None:
            self.judge.acknowledged(offset, value)

        # Some do not wait for the replicas: their records may be cut, which followers must notice.
        waits = self.random.randrange(4) > 0
        if machine.produce(value, self.now_ms, acked if waits else None):
            self.moved(machine)
        self.clock.after(self.random.randrange(2 * self.produce_every_us), self._produce)

    # -- the end

    def recover(self) -> None:
        """All faults end: every replica must be in sync, and records be acknowledged."""
        self.note("all faults end")
        self.has_faults = False
        self.network.faults = QUIET
        self.network.heal()
        self.disk_us = dict.fromkeys(self.machines, 300)
        for machine in self.machines.values():
            machine.disk.power_cut_after = None
            machine.disk.heal()
            self.power_on(machine)
        acked = len(self.judge.acked)
        end_us = self.clock.now_us + RECOVERY_US_MAX
        while len(self.judge.acked) <= acked or not self._is_whole():
            self.clock.step()
            if self.clock.now_us > end_us:
                raise InvariantViolated("all faults have ended, yet the replicas are not in sync")
        self.judge.check_nothing_lost(self.machines.values())

    def _is_whole(self) -> bool:
        state = self.image.topics[TOPIC].partitions[0]
        if set(state.isr) != set(self.machines):
            return False
        ends = {
            (one.partition.state.high_watermark, one.partition.state.log_end)
            for one in self.machines.values()
            if one.partition is not None
        }
        return len(ends) == 1 and all(one.partition is not None for one in self.machines.values())
