"""KIP-392 with a real client: who stands in a follower's rack reads from the follower."""

from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from tests.cluster_nodes.kit import NODES, Cluster, eventually
from tests.cluster_nodes.load import Load, consumer

from chronik.model.broker_configs import RACK_AWARE_SELECTOR

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(
        tmp_path_factory.mktemp("racks"),
        "--set=broker.rack=rack-{node}",
        f"--set=replica.selector.class={RACK_AWARE_SELECTOR}",
    )
    with made.running() as running:
        yield running


def served_bytes(cluster: Cluster, node: int, topic: str) -> float:
    name = f'kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}}'
    return cluster.metrics(node).get(name, 0.0)


def read(cluster: Cluster, topic: str, rack: str, count: int) -> list[int]:
    values: list[int] = []
    config = {"group.id": rack, "client.rack": rack, "auto.offset.reset": "earliest"}
    with consumer(cluster.bootstrap, **config) as reader:
        reader.subscribe([topic])
        eventually(lambda: _more(reader, values) >= count, 30, f"reading {topic} from {rack}")
    return values


def _more(reader: object, values: list[int]) -> int:
    found = reader.consume(500, 0.2)  # type: ignore[attr-defined]
    values += [int(one.value()) for one in found if one.error() is None]
    return len(values)


@pytest.mark.parametrize("place", ["leader", "follower", "elsewhere"])
def test_a_consumer_reads_in_its_own_rack(racks: Cluster, place: str) -> None:
    topic = f"near-{place}"
    racks.create(topic)
    leader = racks.leader(topic)
    follower = next(node for node in NODES if node != leader)
    with Load(racks.bootstrap, topic, 1) as load:
        load.wait_acked(300)
    rack = {"leader": f"rack-{leader}", "follower": f"rack-{follower}"}.get(place, "rack-9")
    values = read(racks, topic, rack, len(load.acked))
    assert values == sorted(load.acked), "each record once and in order"
    server = follower if place == "follower" else leader
    others = [node for node in NODES if node != server]
    assert served_bytes(racks, server, topic) > 0
    assert [served_bytes(racks, node, topic) for node in others] == [0, 0]


def test_a_consumer_of_a_follower_goes_on_when_the_follower_dies(racks: Cluster) -> None:
    topic = "near-dying"
    racks.create(topic)
    leader = racks.leader(topic)
    follower = next(n for n in NODES if n not in {leader, racks.controller()})
    values: list[int] = []
    config = {"group.id": "survivor", "client.rack": f"rack-{follower}"}
    with (
        Load(racks.bootstrap, topic, 1) as load,
        consumer(racks.bootstrap, **config) as reader,
    ):
        # As a member it would join again when a rack is gone (KIP-881), and begin anew.
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        eventually(lambda: _more(reader, values) >= 100, 30)
        racks.kill(follower)
        load.wait_acked(200)
        goal = len(load.acked)
        eventually(lambda: _more(reader, values) >= goal, 30)
    assert values == list(range(len(values)))
    racks.start(follower)
    racks.wait_full_isr(topic)
