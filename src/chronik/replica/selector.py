"""Which replica a consumer should read from (KIP-392): one in its own rack, if there is one.

As Kafka's RackAwareReplicaSelector: the leader where it stands in the client's rack, else of the
replicas there that have the wanted offset the one that has the most.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Readable(NamedTuple):
    """A live replica and what the leader knows of it."""

    node_id: int
    rack: str | None
    log_start: int
    log_end: int
    caught_up_ms: int


def preferred_replica(
    client_rack: str, leader_id: int, replicas: Iterable[Readable], offset: int
) -> int:
    """The node to read `offset` from; the leader where none is nearer."""
    near = [
        one
        for one in replicas
        if one.rack == client_rack and one.log_start <= offset <= one.log_end
    ]
    if not near or any(one.node_id == leader_id for one in near):
        return leader_id
    return max(near, key=lambda one: (one.log_end, one.caught_up_ms, -one.node_id)).node_id
