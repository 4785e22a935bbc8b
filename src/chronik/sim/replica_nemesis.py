"""Lets faults happen to the replicas of a partition: which ones, the seed draws."""

import errno
from collections.abc import Callable

from chronik.sim.replica_cluster import CONTROLLER, PartitionCluster
from chronik.sim.replica_machine import TOPIC, ReplicaMachine


class ReplicaNemesis:
    """Draws a fault now and then, as long as the cluster has faults."""

    def __init__(self, cluster: PartitionCluster) -> None:
        self.cluster = cluster
        self.random = cluster.random
        self.faults = self._draw_faults()

    def _draw_faults(self) -> list[Callable[[], None]]:
        optional = [
            self._crash_some,
            self._crash_leader,
            self._crash_all,
            self._crash_in_write,
            self._isolate,
            self._isolate_leader,
            self._one_way,
            self._slow_disk,
            self._refuse,
        ]
        chosen = [fault for fault in optional if self.random.randrange(2)]
        return [self.cluster.network.heal, *chosen]

    def begin(self) -> None:
        """Plans the next fault."""
        delay_us = self.random.randrange(2 * self.cluster.fault_every_us)
        self.cluster.clock.after(delay_us, self._strike)

    def _strike(self) -> None:
        if self.cluster.has_faults:
            fault = self.random.choice(self.faults)
            self.cluster.note(f"fault: {fault.__name__.strip('_')}")
            fault()
            self.begin()

    def _some(self) -> ReplicaMachine:
        return self.random.choice(list(self.cluster.machines.values()))

    def _leader(self) -> ReplicaMachine:
        leader = self.cluster.image.topics[TOPIC].partitions[0].leader
        return self.cluster.machines.get(leader) or self._some()

    def _crash_some(self) -> None:
        self.cluster.crash(self._some())

    def _crash_leader(self) -> None:
        self.cluster.crash(self._leader())

    def _crash_all(self) -> None:
        if self.random.randrange(4) == 0:
            for machine in self.cluster.machines.values():
                self.cluster.crash(machine)

    def _crash_in_write(self) -> None:
        self._some().disk.power_cut_after = self.random.randrange(8)

    def _refuse(self) -> None:
        """A disk that fails a few times, and of which nobody knows what it has after that."""
        disk, times = self._leader().disk, self.random.randint(1, 3)
        disk.fail(self.random.choice(("fdatasync", "fdatasync", "pwritev")), errno.EIO, times=times)

    def _isolate(self) -> None:
        self._cut_off(self._some())

    def _isolate_leader(self) -> None:
        self._cut_off(self._leader())

    def _cut_off(self, machine: ReplicaMachine) -> None:
        """From the others, and perhaps not from the controller."""
        others = [one for one in self.cluster.machines if one != machine.id]
        self.cluster.network.heal()
        self.cluster.network.cut(
            [machine.id], [*others, CONTROLLER] if self.random.randrange(2) else others
        )

    def _one_way(self) -> None:
        machine = self._some()
        others = [*(one for one in self.cluster.machines if one != machine.id), CONTROLLER]
        some = self.random.sample(others, self.random.randint(1, len(others)))
        if self.random.randrange(2):
            self.cluster.network.cut([machine.id], some, one_way=True)
        else:
            self.cluster.network.cut(some, [machine.id], one_way=True)

    def _slow_disk(self) -> None:
        self.cluster.disk_us[self._some().id] = self.random.choice((300, 4_000, 150_000))
