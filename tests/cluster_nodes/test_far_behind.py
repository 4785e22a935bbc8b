"""A follower that has nothing of what is committed gets all of it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster_nodes.in_process import nodes_in
from tests.faults.nodes import Client, run

from chronik.broker.partition import Partition
from chronik.model.errors import ErrorCode
from chronik.node.node import Node
from chronik.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from chronik.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

pytestmark = pytest.mark.integration

TOPIC = "orders"
VALUE_BYTES = 500_000
BATCHES = 16


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - what is waited for knows no event
        await asyncio.sleep(0.005)


def partition_of(node: Node) -> Partition | None:
    return node.broker.partitions.find(TOPIC, None, 0)[0]


async def filled(leader: Client) -> None:
    """A topic of the first node alone, with all that it is going to hold."""
    alone = CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    topic = CreatableTopic(
        name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[alone]
    )
    answer = await leader.ask(CreateTopicsRequest(topics=[topic]))
    assert answer.topics[0].error_code == ErrorCode.NONE
    for number in range(BATCHES):
        answer = await leader.produce(TOPIC, bytes([number]) * VALUE_BYTES)
        assert answer.error_code == ErrorCode.NONE


async def followed(leader: Client) -> None:
    """The second node is told to follow: it has nothing of what is committed."""
    both = ReassignablePartition(partition_index=0, replicas=[1, 2])
    topics = [ReassignableTopic(name=TOPIC, partitions=[both])]
    answer = await leader.ask(AlterPartitionReassignmentsRequest(topics=topics))
    assert answer.error_code == answer.responses[0].partitions[0].error_code == ErrorCode.NONE


def log_bytes(directory: Path, node_id: int) -> bytes:
    folder = directory / f"node-{node_id}" / "topics" / f"{TOPIC}-0"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def test_a_follower_far_behind_gets_the_same_bytes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with nodes_in(tmp_path, 2) as (one, two):
            leader = await Client.connect(one.port)
            await filled(leader)
            assert partition_of(two) is None
            await followed(leader)
            await until(lambda: has_all(two))
            await leader.close()

    run(scenario)
    expected = log_bytes(tmp_path, 1)
    assert len(expected) > BATCHES * VALUE_BYTES
    assert log_bytes(tmp_path, 2) == expected


def has_all(node: Node) -> bool:
    partition = partition_of(node)
    return partition is not None and partition.state.high_watermark == BATCHES
