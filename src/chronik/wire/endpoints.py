"""What Produce and Fetch answers say of leaders elsewhere: who leads, and where (KIP-951)."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from chronik.wire.primitives import array_length, string

_LEADER: Final = struct.Struct(">iiB")
_INT32: Final = struct.Struct(">i")


class Leader(NamedTuple):
    """The leader of a partition as far as the answering broker knows."""

    leader_id: int = -1
    leader_epoch: int = -1


class NodeEndpoint(NamedTuple):
    """Where a leader named in the same answer can be reached."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


NO_LEADER: Final = Leader()


def leader_body(leader: Leader) -> bytes:
    """The bytes inside the tagged field."""
    return _LEADER.pack(leader.leader_id, leader.leader_epoch, 0)


def endpoints_body(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The bytes inside the tagged field."""
    pieces = [array_length(len(endpoints), flexible=True)]
    for node_id, host, port, rack in endpoints:
        pieces += (_INT32.pack(node_id), string(host, True), _INT32.pack(port))
        pieces += (string(rack, True), b"\0")
    return b"".join(pieces)
