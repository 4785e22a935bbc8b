"""Who leads a partition: the rules, for one partition and for all that a broker's fate touches.

A leader comes from the ISR. The last member of an ISR stays in it even when it is fenced, because
it alone is known to have every acknowledged record; only unclean election gives that up. When its
disk is lost nobody is known to: the ISR is empty and the partition waits for an unclean election.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from chronik.cluster.image import NO_LEADER, ClusterImage, PartitionState
from chronik.cluster.records import PartitionChanged, Record
from chronik.model.configs import BrokerLayers
from chronik.model.topic_configs import TopicConfig, base_config, resolve

IsLive = Callable[[int], bool]


def advance(old: PartitionState, new: PartitionState) -> PartitionState:
    """The next state of a partition with its epochs counted on; the old one if nothing changed."""
    if new == old:
        return old
    # With a new leader, or a replica gone, nobody may go on with the old leader epoch (KIP-320).
    bump = new.leader != old.leader or not set(old.replicas) <= set(new.replicas)
    return replace(
        new,
        leader_epoch=old.leader_epoch + int(bump),
        partition_epoch=old.partition_epoch + 1,
    )


def pick_leader(state: PartitionState, isr: tuple[int, ...], is_live: IsLive) -> int:
    """The leader stays if it can; else the first replica in order that is live and in sync."""
    if state.leader in isr and is_live(state.leader):
        return state.leader
    in_order = (*state.target_replicas, *state.replicas)
    return next((one for one in in_order if one in isr and is_live(one)), NO_LEADER)


def settle(state: PartitionState, is_live: IsLive, *, unclean: bool) -> PartitionState:
    """The partition after brokers came or went: an ISR without the dead, a leader if possible."""
    return advance(state, _settled(state, is_live, unclean=unclean))


def without_disk(
    state: PartitionState, broker_id: int, is_live: IsLive, *, unclean: bool
) -> PartitionState:
    """The partition after a broker lost its disk: others lead, or nobody does."""
    isr = tuple(one for one in state.isr if one != broker_id)
    return advance(state, _settled(replace(state, isr=isr), is_live, unclean=unclean))


def _settled(state: PartitionState, is_live: IsLive, *, unclean: bool) -> PartitionState:
    # Where all of the ISR is gone, each of them has the data: all are kept, the first back leads.
    isr = tuple(one for one in state.isr if is_live(one)) or state.isr
    leader = pick_leader(state, isr, is_live)
    if leader == NO_LEADER and unclean:
        leader = next((one for one in state.replicas if is_live(one)), NO_LEADER)
        isr = isr if leader == NO_LEADER else (leader,)
    return replace(state, isr=isr, leader=leader)


class UncleanRule:
    """Whether a topic allows unclean election; the answer without overrides is worked out once."""

    def __init__(self, image: ClusterImage, layers: BrokerLayers) -> None:
        self._image = image
        self._base: TopicConfig = base_config(layers)

    def __call__(self, topic: str) -> bool:
        overrides = self._image.topic_overrides(topic)
        if "unclean.leader.election.enable" not in overrides:
            return self._base.unclean_leader_election_enable
        return resolve(overrides, self._base).unclean_leader_election_enable


def settle_all(
    image: ClusterImage,
    is_live: IsLive,
    unclean: Callable[[str], bool],
    touched: Callable[[PartitionState], bool],
) -> Iterable[Record]:
    """The changes of every partition that `touched` picks."""
    for topic, index, state in image.partitions():
        if not touched(state):
            continue
        new = settle(state, is_live, unclean=unclean(topic.name))
        if new is not state:
            yield PartitionChanged(topic.id, index, new)
