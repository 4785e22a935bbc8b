"""Cut and one-way networks between the nodes; clients reach every node all the time."""

import time
from collections.abc import Iterator

import pytest
from tests.cluster_nodes.kit import NODES, Cluster, eventually
from tests.cluster_nodes.load import Load, check_delivery, read_all
from tests.cluster_nodes.proxies import Network

pytestmark = pytest.mark.integration
PARTITIONS = 3


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("proxied"), proxied=True).running() as running:
        yield running


@pytest.fixture
def network(cluster: Cluster) -> Network:
    assert cluster.network is not None
    return cluster.network


def verify(cluster: Cluster, topic: str, load: Load) -> None:
    cluster.check_replicas_equal(topic)
    ends = {one: cluster.end_offset(topic, one) for one in range(PARTITIONS)}
    check_delivery(load, read_all(cluster.bootstrap, topic, ends))


@pytest.mark.parametrize("who", ["leader", "controller"])
def test_a_node_is_cut_off(cluster: Cluster, network: Network, topic: str, who: str) -> None:
    controller = cluster.controller()
    victim = controller if who == "controller" else next(n for n in NODES if n != controller)
    others = [n for n in NODES if n != victim]
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_acked(200)
        network.isolate(victim)
        port = cluster.ports[others[0]]
        eventually(
            lambda: all(
                state.leader_id in others for state in cluster.partitions(topic, port).values()
            )
        )
        load.wait_acked(100)
        network.heal()
        cluster.wait_full_isr(topic)
        load.wait_acked(200)
    verify(cluster, topic, load)


@pytest.mark.parametrize("direction", ["to", "from"])
def test_a_one_way_network(cluster: Cluster, network: Network, topic: str, direction: str) -> None:
    """Whatever can be served meanwhile, nothing acknowledged is lost and all is well afterwards."""
    victim = next(n for n in NODES if n != cluster.controller())
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_acked(200)
        for other in NODES:
            if other != victim:
                network.cut(*((other, victim) if direction == "to" else (victim, other)))
        time.sleep(4)
        network.heal()
        cluster.wait_full_isr(topic)
        load.wait_acked(200)
    verify(cluster, topic, load)


def test_two_nodes_do_not_see_each_other(cluster: Cluster, network: Network, topic: str) -> None:
    """The third one sees both: no storm of elections, no loss."""
    one, two = [n for n in NODES if n != cluster.controller()]
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_acked(200)
        network.cut(one, two)
        network.cut(two, one)
        time.sleep(3)
        controllers = {cluster.controller(cluster.ports[n]) for n in NODES}
        assert len(controllers) == 1
        network.heal()
        cluster.wait_full_isr(topic)
        load.wait_acked(200)
    verify(cluster, topic, load)
