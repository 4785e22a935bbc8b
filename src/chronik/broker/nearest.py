"""Sends consumers to the replica in their own rack, where `replica.selector.class` says so."""

from collections.abc import Iterator

from chronik.broker.partition import Partition
from chronik.cluster.image import ClusterImage
from chronik.replica.selector import Readable, preferred_replica


def nearest(partition: Partition, image: ClusterImage, rack: str, offset: int) -> int:
    """The node that a client in `rack` should ask; this one, the leader, where none is nearer."""
    leader = partition.leader_id
    return preferred_replica(rack, leader, _readable(partition, image), offset)


def _readable(partition: Partition, image: ClusterImage) -> Iterator[Readable]:
    state = partition.state
    me = image.brokers.get(partition.leader_id)
    if me is not None:
        yield Readable(me.id, me.rack, state.log_start, state.log_end, 0)
    for node_id, follower in state.followers.items():
        broker = image.brokers.get(node_id)
        if broker is not None and broker.live and follower.end >= 0:
            # A follower that has not said where its log starts has it where the leader has.
            start = follower.log_start if follower.log_start >= 0 else state.log_start
            yield Readable(node_id, broker.rack, start, follower.end, follower.caught_up_ms)
