"""Hundreds of partitions on three nodes: a dead node's are all written to again, soon."""

from collections import defaultdict

import pytest
from tests.cluster_nodes.kit import NODES, Cluster, ask, eventually

from chronik.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from chronik.wire.record_writer import build_batch

pytestmark = pytest.mark.integration
TOPIC = "wide"
PARTITIONS = 300
FAILOVER_SECONDS_MAX = 15.0
"""Generous, beside other tests; `bench/many_partitions.py --nodes 3` measures it."""


def written(cluster: Cluster, partitions: set[int], dead: int) -> set[int]:
    """Tries each partition once at its leader; those that took the record."""
    batch = bytes(build_batch([(None, b"one record")], 0))
    by_leader: dict[int, list[PartitionProduceData]] = defaultdict(list)
    for index, state in cluster.partitions(TOPIC).items():
        if index in partitions and state.leader_id not in {dead, -1}:
            data = PartitionProduceData(index=index, records=batch)
            by_leader[state.leader_id].append(data)
    done = set()
    for leader, batches in by_leader.items():
        topic = TopicProduceData(name=TOPIC, partition_data=batches)
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
        (said,) = ask(cluster.ports[leader], request, 9).responses
        done |= {one.index for one in said.partition_responses if not one.error_code}
    return done


def write_all(cluster: Cluster, partitions: set[int], dead: int = 0) -> float:
    """Seconds until each partition has acknowledged a record with acks=all."""
    left = set(partitions)

    def tried() -> bool:
        left.difference_update(written(cluster, left, dead))
        return not left

    return eventually(tried, FAILOVER_SECONDS_MAX, f"a record in each of {len(partitions)}")


@pytest.mark.parametrize("controller_dies", [False, True])
def test_every_partition_of_a_dead_node_is_written_to_again(
    cluster: Cluster, *, controller_dies: bool
) -> None:
    cluster.create(TOPIC, PARTITIONS)
    write_all(cluster, set(range(PARTITIONS)))
    controller = cluster.controller()
    victim = controller if controller_dies else next(n for n in NODES if n != controller)
    led = {p for p, state in cluster.partitions(TOPIC).items() if state.leader_id == victim}
    assert len(led) >= PARTITIONS // len(NODES) - 1, "leaders are spread evenly"
    cluster.kill(victim)
    took = write_all(cluster, led, victim)
    print(f"{len(led)} partitions written to again after {took:.2f} s")  # noqa: T201
    cluster.start(victim)
    cluster.wait_full_isr(TOPIC)
    ends = {p: cluster.end_offset(TOPIC, p) for p in sorted(led)[:10]}
    assert all(end >= 2 for end in ends.values()), ends
    cluster.delete(TOPIC)
