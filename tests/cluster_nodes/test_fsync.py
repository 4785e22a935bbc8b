"""Failover and the loss of power everywhere, with every acknowledged byte synced to disk first."""

from collections.abc import Iterator

import pytest
from tests.cluster_nodes import test_failover
from tests.cluster_nodes.kit import Cluster

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("fsync")
    with Cluster(directory, durability="fsync").running() as running:
        yield running


def test_a_dead_leader_is_replaced(cluster: Cluster, topic: str) -> None:
    test_failover.test_a_dead_leader_is_replaced_within_three_seconds(cluster, topic)


def test_two_nodes_are_killed(cluster: Cluster, topic: str) -> None:
    test_failover.test_two_nodes_are_killed_and_come_back(cluster, topic)


@pytest.mark.parametrize("times", range(2))
def test_all_nodes_are_killed_at_once(cluster: Cluster, topic: str, times: int) -> None:
    test_failover.test_all_nodes_are_killed_and_come_back(cluster, topic)
