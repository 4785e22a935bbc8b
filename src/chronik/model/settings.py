"""What a node is told when it starts. Everything that may change later is a broker config."""

from dataclasses import dataclass
from typing import Literal

Durability = Literal["fsync", "os"]
TraceMode = Literal["off", "memory", "files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """One node. Addresses are validated before anything opens (see `cli`)."""

    data_dir: str
    node_id: int = 1
    host: str = "127.0.0.1"
    port: int = 9092
    """0 lets the system choose."""
    advertised_host: str | None = None
    """What clients are told; the bind address where it is None, and never 0.0.0.0."""
    advertised_port: int | None = None
    rack: str | None = None
    peer_host: str | None = None
    """Where the node listens for other nodes; `host` where it is None."""
    peer_port: int = 0
    """Where other nodes connect; used only where there are `peers`."""
    peers: tuple[tuple[int, str, int], ...] = ()
    """All voters of the cluster, this node among them: (node id, host, peer port)."""
    join: bool = False
    """New to a cluster that runs already: `peers` are asked to let this node in."""
    durability: Durability = "fsync"
    trace: TraceMode = "off"
    http_host: str | None = None
    http_port: int | None = None
    """Metrics, health and the status page; None serves none, 0 lets the system choose."""
    configs: tuple[tuple[str, str], ...] = ()
    """Static broker configs, by Kafka's names."""


def static_configs(settings: NodeSettings, listener: str) -> dict[str, str]:
    """What DescribeConfigs shows as coming from the node's own file."""
    static = dict(settings.configs)
    static.setdefault("chronik.durability", settings.durability)
    static |= {"node.id": str(settings.node_id), "broker.id": str(settings.node_id)}
    static |= {"log.dirs": settings.data_dir}
    if settings.port:
        static["listeners"] = f"{listener}://{settings.host}:{settings.port}"
        advertised = settings.advertised_host or settings.host
        port = settings.advertised_port or settings.port
        static["advertised.listeners"] = f"{listener}://{advertised}:{port}"
    if settings.rack is not None:
        static["broker.rack"] = settings.rack
    return static
