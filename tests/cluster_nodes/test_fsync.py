"""Failover and the loss of power everywhere, with every acknowledged byte synced to disk first."""

import time
from collections.abc import Iterator

import pytest
from tests.cluster_nodes import test_failover
from tests.cluster_nodes.kit import NODES, Cluster, ask
from tests.cluster_nodes.load import Load
from tests.faults.nodes import produce_request

pytestmark = pytest.mark.integration
SYNC_S = 0.7


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("fsync")
    with Cluster(directory, durability="fsync", faulty=True).running() as running:
        yield running


def test_a_dead_leader_is_replaced(cluster: Cluster, topic: str) -> None:
    test_failover.test_a_dead_leader_is_replaced_within_three_seconds(cluster, topic)


def test_two_nodes_are_killed(cluster: Cluster, topic: str) -> None:
    test_failover.test_two_nodes_are_killed_and_come_back(cluster, topic)


@pytest.mark.parametrize("times", range(2))
def test_all_nodes_are_killed_at_once(cluster: Cluster, topic: str, times: int) -> None:
    test_failover.test_all_nodes_are_killed_and_come_back(cluster, topic)


def test_leader_and_followers_sync_at_the_same_time(cluster: Cluster, topic: str) -> None:
    """One after the other, two syncs would take twice as long."""
    port = cluster.ports[cluster.leader(topic)]
    assert cluster.machines is not None

    def acked_s() -> float:
        began = time.monotonic()
        (answer,) = ask(port, produce_request(topic, b"v", acks=-1), 9).responses
        assert answer.partition_responses[0].error_code == 0
        return time.monotonic() - began

    acked_s()  # makes the files
    for node in NODES:
        cluster.machines.slow_sync(node, SYNC_S)
    took_s = [acked_s() for _ in range(3)]
    assert SYNC_S <= min(took_s) < 1.9 * SYNC_S, took_s


def test_fm63_syncs_that_fail_on_a_leader_lose_nothing(cluster: Cluster, topic: str) -> None:
    """Its followers have what its own disk refused: neither is it lost, nor its place reused."""
    assert cluster.machines is not None
    victim = cluster.leader(topic)
    with Load(cluster.bootstrap, topic, test_failover.PARTITIONS) as load:
        load.wait_acked(200)
        for _ in range(3):
            cluster.machines.bad_sync(victim)
            time.sleep(0.6)
            cluster.machines.heal()
            load.wait_acked(100)
    assert not load.failed
    test_failover.verify(cluster, topic, load)
