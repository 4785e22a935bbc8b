"""Rounds of faults drawn from a seed, and the proof after each that nothing was lost.

A round breaks something under load, mends it, waits until every replica is in sync and then checks:
each acknowledged record is there once, at its offset, in its producer's order; all replicas have
the same bytes; who read along saw nothing else; no watermark moved back on any node.
"""

import contextlib
import logging
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import Self

from tests.cluster_nodes.kit import NODES, Cluster
from tests.cluster_nodes.load import Load, check_delivery, read_all
from tests.cluster_nodes.witnesses import Reader, Watermarks

TOPIC, PARTITIONS = "chaos", 3
BESIDE = "beside"
"""Two replicas each, so that every node has a partition that it has nothing to do with."""
PADDING = b"." * 300
MEND_SECONDS_MAX = 60.0
HOUR_S = 3600.0
UNDER_WAY_S = 0.3

log = logging.getLogger(__name__)


class Chaos:
    """A cluster, its load, its witnesses, and what can happen to it."""

    def __init__(self, cluster: Cluster, seed: int, pause_s: float) -> None:
        assert cluster.network is not None
        assert cluster.machines is not None
        self.cluster = cluster
        self.network = cluster.network
        self.machines = cluster.machines
        self.random = Random(seed)
        self.pause_s = pause_s
        self.loads: list[Load] = []
        self.current: list[Load] = []
        self.beside: list[Load] = []
        """A producer per partition: answers leave a connection in order, so one would wait."""
        self.story: list[str] = []
        self.did: list[str] = []
        """In the last round."""
        self.read = 0
        """Records that the last check found in the topic."""
        self.recovery_s: list[float] = []
        self.beside_s: list[float] = []
        self._witnesses = contextlib.ExitStack()

    def __enter__(self) -> Self:
        # Small segments: logs roll, and are cut, over several files.
        self.cluster.create(TOPIC, PARTITIONS, segment_bytes=str(1 << 20))
        self.cluster.create(BESIDE, 3, rf=2)
        self.reader = self._witnesses.enter_context(Reader(self.cluster, TOPIC, PARTITIONS))
        self.watermarks = self._witnesses.enter_context(Watermarks(self.cluster, TOPIC, PARTITIONS))
        return self

    def __exit__(self, *_: object) -> None:
        self._witnesses.close()

    # -- a round

    def round(self, name: str) -> None:
        """Breaks something under load, mends it, proves that nothing is lost."""
        began = time.monotonic()
        number = len(self.loads) // 2
        self.did = []
        bootstrap = self.cluster.bootstrap
        self.current = [
            Load(bootstrap, TOPIC, PARTITIONS, name=b"%d%s:" % (number, one), padding=PADDING)
            for one in (b"a", b"b")
        ]
        self.loads += self.current
        self.beside = [Load(bootstrap, BESIDE, [one]) for one in range(3)]
        try:
            with contextlib.ExitStack() as stack:
                for load in (*self.beside, *self.current):
                    stack.enter_context(load)
                try:
                    self._wait_acked(60)
                    ACTS[name](self)
                finally:  # else no record that is under way ever gets its fate
                    self.cluster.mend(MEND_SECONDS_MAX)
                self._wait_acked(60)
            self.verify()
        except BaseException as error:
            error.add_note(f"in round {number} ({name}) after {'; '.join(self.story)}")
            raise
        self.story.append(f"{name} took {time.monotonic() - began:.1f} s")

    def note(self, text: str) -> None:
        self.story.append(text)
        self.did.append(text)
        log.info(text)

    def verify(self) -> None:
        """Of everything so far, not only of the last round."""
        self.cluster.check_replicas_equal(TOPIC)
        ends = {one: self.cluster.end_offset(TOPIC, one) for one in range(PARTITIONS)}
        found = read_all(self.cluster.bootstrap, TOPIC, ends)
        self.read = len(found)
        for load in self.loads:
            check_delivery(load, found)
        self.reader.check(found)
        assert not self.watermarks.wrong, self.watermarks.wrong[:3]
        self.cluster.check_logs()

    def _wait_acked(self, more: int) -> None:
        for load in self.current:
            load.wait_acked(more)

    # -- whom it meets

    def some_node(self) -> int:
        return self.random.choice(NODES)

    def led_by(self, node: int, topic: str = TOPIC) -> list[int]:
        states = self.cluster.partitions(topic)
        return [one for one, state in states.items() if state.leader_id == node]

    def some_leader(self) -> int:
        """A node that leads a partition, and not the metadata log if there is such a one."""
        controller = self.cluster.controller()
        leaders = [node for node in NODES if self.led_by(node)]
        return self.random.choice([node for node in leaders if node != controller] or leaders)

    def others(self, node: int) -> list[int]:
        return [one for one in NODES if one != node]

    # -- what can happen

    def kill_leader(self) -> None:
        self._kill_and_measure(self.some_leader())

    def kill_controller(self) -> None:
        self._kill_and_measure(self.cluster.controller())

    def _kill_and_measure(self, victim: int) -> None:
        """From the death to the first acknowledgement on what it led; nothing elsewhere."""
        led = self.led_by(victim)
        states = self.cluster.partitions(BESIDE)
        away = [one for one, state in states.items() if victim not in state.replica_nodes]
        killed = time.monotonic()
        self.cluster.kill(victim)
        # What was under way to the client is no sign of life.
        since = killed + UNDER_WAY_S
        recovered = [self.current[0].first_ack_s(one, since) + UNDER_WAY_S for one in led]
        beside = [self.beside[one].longest_gap_s(one, killed - 0.2) for one in away]
        self.recovery_s += recovered
        self.beside_s += beside
        self.note(
            f"node {victim} dead: {[round(one, 2) for one in recovered]} s until it goes on, "
            f"beside {[round(one, 2) for one in beside]}"
        )

    def kill_two(self) -> None:
        first, second = self.random.sample(NODES, 2)
        self.cluster.kill(first, second)
        self.note(f"nodes {first} and {second} dead")
        time.sleep(self.random.random())
        self.cluster.start(second)
        self._wait_acked(60)

    def kill_all(self) -> None:
        self.cluster.kill(*NODES)

    def kill_twice(self) -> None:
        """The second one while the first is catching up."""
        first = self.some_leader()
        self.cluster.kill(first)
        time.sleep(self.random.uniform(0, 4))
        self.cluster.start(first)
        time.sleep(self.random.uniform(0, 1))
        self.cluster.kill(self.random.choice(self.others(first)))
        self._wait_acked(30)

    def pause(self) -> None:
        victim = self.some_node()
        self.cluster.pause(victim)
        self.note(f"node {victim} stopped for {self.pause_s:.0f} s")
        time.sleep(self.pause_s)

    def blink(self) -> None:
        """Pauses about as long as a session: some end it, some do not."""
        for _ in range(3):
            victim = self.some_node()
            self.cluster.pause(victim)
            time.sleep(self.random.uniform(0.5, 3))
            self.cluster.resume(victim)
            time.sleep(self.random.random())

    def isolate(self) -> None:
        victim = self.some_node()
        self.network.isolate(victim)
        self.note(f"node {victim} alone")
        self._wait_acked(30)
        time.sleep(self.random.uniform(0, 3))

    def one_way(self) -> None:
        victim, is_deaf = self.some_node(), self.random.random() < 0.5
        self.note(f"node {victim} {'deaf' if is_deaf else 'mute'}")
        for other in self.others(victim):
            self.network.cut(*((other, victim) if is_deaf else (victim, other)))
        time.sleep(4)

    def cut_pair(self) -> None:
        one, two = self.random.sample(NODES, 2)
        self.network.cut(one, two)
        self.network.cut(two, one)
        self.note(f"nodes {one} and {two} cut from each other")
        time.sleep(3)

    def flap(self) -> None:
        """A network that comes and goes."""
        for _ in range(6):
            one, two = self.random.sample(NODES, 2)
            self.network.cut(one, two)
            time.sleep(self.random.uniform(0.1, 1))
            if self.random.random() < 0.5:
                self.network.heal()

    def slow_disk(self) -> None:
        victim, seconds = self.some_node(), self.random.choice([0.05, 0.3, 1.0])
        self.machines.slow_disk(victim, seconds)
        self.note(f"node {victim}'s writes take {seconds} s")
        time.sleep(4)

    def full_disk(self) -> None:
        victim = self.some_node()
        self.machines.full_disk(victim)
        self.note(f"node {victim}'s disk full")
        time.sleep(3)

    def full_disk_and_kill(self) -> None:
        """What a full disk left behind is what the next process finds."""
        victim = self.some_node()
        self.machines.full_disk(victim)
        time.sleep(1)
        self.cluster.kill(victim)

    def jump_clock(self) -> None:
        victim, seconds = self.some_node(), self.random.choice([-HOUR_S, HOUR_S])
        self.machines.jump_clock(victim, seconds)
        self.note(f"node {victim}'s clock jumps by {seconds:+.0f} s")
        time.sleep(3)

    def jump_clock_and_kill(self) -> None:
        victim = self.some_leader()
        self.machines.jump_clock(self.random.choice(self.others(victim)), -HOUR_S)
        self._kill_and_measure(victim)

    def rolling_restart(self) -> None:
        for node in self.random.sample(NODES, 3):
            assert self.cluster.stop(node) < 5
            self.cluster.start(node)
            self.cluster.wait_full_isr(TOPIC, MEND_SECONDS_MAX)

    def wipe(self) -> None:
        victim = self.some_node()
        self.cluster.kill(victim)
        self.cluster.wipe(victim)
        self.note(f"node {victim} wiped")

    def isolate_and_kill(self) -> None:
        """A leader that is alone goes on until it notices; then another one dies."""
        victim = self.some_leader()
        self.network.isolate(victim)
        time.sleep(self.random.uniform(0, 3))
        self.cluster.kill(self.random.choice(self.others(victim)))
        time.sleep(self.random.uniform(0, 1))

    def times(self) -> str:
        """How soon a dead leader's partitions took records again, in numbers."""

        def sums(many: list[float]) -> str:
            if not many:
                return "none"
            middle = statistics.median(many)
            return f"{len(many)} partitions, median {middle:.2f} s, max {max(many):.2f} s"

        return f"dead leaders' partitions: {sums(self.recovery_s)}; beside: {sums(self.beside_s)}"


ACTS: dict[str, Callable[[Chaos], None]] = {
    act.__name__: act
    for act in (
        Chaos.kill_leader,
        Chaos.kill_controller,
        Chaos.kill_two,
        Chaos.kill_all,
        Chaos.kill_twice,
        Chaos.pause,
        Chaos.blink,
        Chaos.isolate,
        Chaos.one_way,
        Chaos.cut_pair,
        Chaos.flap,
        Chaos.slow_disk,
        Chaos.full_disk,
        Chaos.full_disk_and_kill,
        Chaos.jump_clock,
        Chaos.jump_clock_and_kill,
        Chaos.rolling_restart,
        Chaos.wipe,
        Chaos.isolate_and_kill,
    )
}


def draw(seed: int, rounds: int) -> list[str]:
    """The faults of a run, all kinds as often as possible."""
    deck: list[str] = []
    random = Random(seed)
    while len(deck) < rounds:
        deck += random.sample(sorted(ACTS), len(ACTS))
    return deck[:rounds]
