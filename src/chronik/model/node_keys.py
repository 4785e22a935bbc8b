"""The keys of a node's configuration file, each with what it means and an example."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["number", "port", "text", "flag", "peers"]


@dataclass(frozen=True, slots=True)
class NodeKey:
    """One key of the file; `example` completes the advice where a value is wrong."""

    name: str
    kind: Kind
    doc: str
    example: str
    choices: tuple[str, ...] = ()
    default: str = ""


_ALL: Final = (
    NodeKey("node.id", "number", "The node's number, unique in the cluster. Required.", "1"),
    NodeKey("node.data", "text", "The directory for everything. Required.", '"/var/lib/chronik"'),
    NodeKey("node.rack", "text", "Where the node stands: replicas are spread.", '"rack-a"'),
    NodeKey(
        "node.durability",
        "text",
        "`fsync`: acknowledged means on the disk; `os`: in the page cache, as Kafka's default.",
        '"fsync"',
        ("fsync", "os"),
        "fsync",
    ),
    NodeKey(
        "node.trace",
        "text",
        "Evidence of every batch's way: `off`, in `memory`, or in `files` under the data.",
        '"off"',
        ("off", "memory", "files"),
        "off",
    ),
    NodeKey("listen.host", "text", "Address for clients.", '"0.0.0.0"', default="127.0.0.1"),
    NodeKey("listen.port", "port", "Port for clients; 0 takes a free one.", "9092", default="9092"),
    NodeKey("advertised.host", "text", "What clients are told; else listen.host.", '"10.0.0.1"'),
    NodeKey("advertised.port", "port", "What clients are told; else listen.port.", "9092"),
    NodeKey("peer.host", "text", "Address for the other nodes; else listen.host.", '"10.0.0.1"'),
    NodeKey("peer.port", "port", "Port for them; else the one in this node's peer.", "9192"),
    NodeKey("http.host", "text", "Address of the status page; else listen.host.", '"127.0.0.1"'),
    NodeKey("http.port", "port", "Status page, /health, /metrics; none if absent.", "9292"),
    NodeKey(
        "cluster.peers",
        "peers",
        "The voters, this node among them: `ID@HOST:PEER_PORT`. Absent: a node on its own.",
        '["1@10.0.0.1:9192"]',
    ),
    NodeKey(
        "cluster.join",
        "flag",
        "This node is new to a cluster that runs already: it asks the peers to let it in.",
        "true",
        default="false",
    ),
)
NODE_KEYS: Final[Mapping[str, NodeKey]] = {one.name: one for one in _ALL}
OWN_KEYS: Final = {
    "node.id": "node.id",
    "broker.id": "node.id",
    "broker.rack": "node.rack",
    "log.dirs": "node.data",
    "log.dir": "node.data",
    "listeners": "listen.host and listen.port",
    "advertised.listeners": "advertised.host and advertised.port",
    "controller.quorum.voters": "cluster.peers",
    "controller.quorum.bootstrap.servers": "cluster.peers",
    "process.roles": "nothing: every node is broker and controller",
}
"""Kafka's names for what has a key of its own here."""
