"""Nodes of one cluster in this process and on its loop: what they do can be looked at."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from chronik.lab.cluster import free_ports
from chronik.model.settings import NodeSettings
from chronik.node.node import Node

HOST = "127.0.0.1"


@contextlib.asynccontextmanager
async def nodes_in(directory: Path, count: int) -> AsyncIterator[list[Node]]:
    """A new cluster, once all its nodes serve."""
    first = free_ports(count)
    peers = tuple((number + 1, HOST, first + number) for number in range(count))
    async with asyncio.TaskGroup() as tasks:
        nodes = []
        for node_id, _, port in peers:
            settings = NodeSettings(
                data_dir=str(directory / f"node-{node_id}"),
                node_id=node_id,
                port=0,
                peer_port=port,
                peers=peers,
                durability="os",
            )
            nodes.append(Node(settings, tasks))
        try:
            await asyncio.gather(*[node.start() for node in nodes])
            yield nodes
        finally:
            await asyncio.gather(*[node.stop() for node in nodes])
