"""What goes wrong in a simulated Raft cluster, and how often. Each seed has its own mixture.

A seed that has every kind of fault all the time finds less than seeds that each have a few, so the
plan draws which kinds it has, how the nodes are configured and how bad the network is.
"""

from dataclasses import dataclass
from enum import Enum
from random import Random

from chronik.raft.config import RaftConfig
from chronik.raft.messages import ConfState, NodeId
from chronik.sim.network import NetworkFaults


class Fault(Enum):
    """Kinds of events that nobody wants."""

    CRASH = "crash"
    CRASH_LEADER = "crash-leader"
    CRASH_ALL = "crash-all"
    CRASH_IN_WRITE = "crash-in-write"
    PARTITION = "partition"
    ISOLATE_LEADER = "isolate-leader"
    ONE_WAY = "one-way"
    HEAL = "heal"
    SLOW_DISK = "slow-disk"
    CHANGE_MEMBERS = "change-members"
    TRANSFER = "transfer"
    SNAPSHOT = "snapshot"


_ALWAYS = (Fault.HEAL, Fault.SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a seed decides before time starts."""

    faults: tuple[Fault, ...]
    fault_every_us: int
    restart_us_max: int
    propose_every_us: int
    read_every_us: int
    drift_percent: int
    network: NetworkFaults
    config: RaftConfig
    segment_bytes: int
    snapshot_keep: int
    disk_us_max: int
    voters: int
    spares: int

    @property
    def bootstrap(self) -> ConfState:
        """The members at the beginning."""
        return ConfState(voters=tuple(range(self.voters)))

    @property
    def ids(self) -> range:
        """All machines; those after the voters start empty and outside the cluster."""
        return range(self.voters + self.spares)

    def config_of(self, node: NodeId) -> RaftConfig:
        """The configuration of one node."""
        values = {name: getattr(self.config, name) for name in self.config.__slots__}
        return RaftConfig(**{**values, "node_id": node})


def draw_plan(random: Random, nodes: int) -> Plan:
    """The mixture of one seed."""
    optional = [fault for fault in Fault if fault not in _ALWAYS]
    chosen = [fault for fault in optional if random.randrange(2)]
    if Fault.CHANGE_MEMBERS in chosen:
        # Joint configurations are short: more of them meet the other faults.
        chosen += [Fault.CHANGE_MEMBERS] * 3
    return Plan(
        faults=(*_ALWAYS, *chosen),
        fault_every_us=random.choice((10_000, 40_000, 150_000)),
        restart_us_max=random.choice((20_000, 100_000, 600_000)),
        propose_every_us=random.choice((4_000, 10_000, 30_000)),
        read_every_us=random.choice((15_000, 50_000)),
        drift_percent=random.choice((0, 5, 30)),
        network=_draw_network(random),
        config=_draw_config(random),
        segment_bytes=random.choice((600, 4_096)),
        snapshot_keep=random.choice((0, 5)),
        disk_us_max=random.choice((200, 3_000)),
        voters=nodes,
        spares=2 if Fault.CHANGE_MEMBERS in chosen else 0,
    )


def _draw_network(random: Random) -> NetworkFaults:
    return NetworkFaults(
        loss_percent=random.choice((0, 2, 10)),
        duplicate_percent=random.choice((0, 3)),
        delay_us_max=random.choice((1_000, 8_000)),
        straggler_percent=random.choice((0, 3)),
    )


def _draw_config(random: Random) -> RaftConfig:
    return RaftConfig(
        node_id=0,
        election_ticks=random.choice((3, 10)),
        heartbeat_ticks=random.choice((1, 2)),
        pre_vote=bool(random.randrange(2)),
        check_quorum=bool(random.randrange(2)),
        message_bytes_max=random.choice((1, 40, 1024 * 1024)),
        inflight_messages_max=random.choice((1, 4, 256)),
        uncommitted_bytes_max=random.choice((100, 1024 * 1024)),
        committed_bytes_per_ready_max=random.choice((20, 1024 * 1024)),
        snapshot_resend_ticks=20,
    )
