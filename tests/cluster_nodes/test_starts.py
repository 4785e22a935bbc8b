"""Cold starts, lost disks, elections at bad moments, and catalogues that outlive them."""

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster_nodes.in_process import nodes_in
from tests.cluster_nodes.kit import NODES, Cluster, ask, eventually
from tests.cluster_nodes.load import Load, check_delivery, read_all
from tests.faults.nodes import produce_request, run

from chronik.broker import controller
from chronik.wire.messages import create_topics

pytestmark = pytest.mark.integration


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that have never run."""
    made = Cluster(tmp_path)
    try:
        yield made
        made.check_logs()
    finally:
        made.close()


def test_fm44_a_first_start_with_one_node_missing(fresh: Cluster) -> None:
    fresh.launch(3)
    time.sleep(1)  # alone it can only wait
    fresh.launch(1)
    fresh.wait_ready(3, 1)
    fresh.create("early", 2, rf=2)
    fresh.start(2)
    fresh.create("late", 2)
    assert {one.node_id for one in fresh.metadata().brokers} == set(NODES)


def test_fm36_a_new_cluster_does_not_wait_for_an_election_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no clock ticks, nobody would ever begin an election."""
    monkeypatch.setattr(controller, "TICK_S", 3600.0)

    async def scenario() -> None:
        async with nodes_in(tmp_path, 3) as nodes:
            assert {node.broker.controller.leader_id for node in nodes} == {1}
            assert all(len(node.broker.controller.image.brokers) == 3 for node in nodes[:1])

    run(scenario)


def test_fm59_a_node_that_waits_for_a_majority_can_be_stopped(fresh: Cluster) -> None:
    fresh.launch(1)
    eventually((fresh.data(1) / "metadata").exists)
    time.sleep(0.5)
    assert fresh.stop(1) < 3


@pytest.mark.parametrize("order", list(itertools.permutations(NODES))[::2])
def test_fm44_a_cold_start_in_any_order(cluster: Cluster, topic: str, order: list[int]) -> None:
    for n in range(5):
        ask(cluster.any_port(), produce_request(topic, b"%d" % n), 9)
    assert cluster.end_offset(topic) == 5
    cluster.stop(*NODES)
    for node in order:
        cluster.launch(node)
        time.sleep(0.1)
    cluster.wait_ready(*NODES)
    cluster.wait_full_isr(topic)
    assert cluster.end_offset(topic) == 5


def test_fm44_a_cold_start_with_one_node_missing(cluster: Cluster, topic: str) -> None:
    ask(cluster.any_port(), produce_request(topic, b"x"), 9)
    leader = cluster.leader(topic)
    others = [node for node in NODES if node != leader]
    cluster.kill(*NODES)
    cluster.start(*others)
    eventually(lambda: cluster.leader(topic) in others)
    assert cluster.end_offset(topic) == 1
    # The second one is back in the ISR a moment later, and with it min.insync.replicas.
    eventually(lambda: len(cluster.partitions(topic)[0].isr_nodes) == 2)
    answer = ask(cluster.any_port(), produce_request(topic, b"y"), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("who", ["controller", "other"])
def test_fm47_a_wiped_node_rejoins_and_catches_up(cluster: Cluster, topic: str, who: str) -> None:
    controller = cluster.controller()
    victim = controller if who == "controller" else next(n for n in NODES if n != controller)
    with Load(cluster.bootstrap, topic, 3) as load:
        load.wait_acked(300)
        cluster.kill(victim)
        cluster.wipe(victim)
        cluster.start(victim)
        cluster.wait_full_isr(topic)
        load.wait_acked(300)
    cluster.check_replicas_equal(topic)
    ends = {one: cluster.end_offset(topic, one) for one in range(3)}
    check_delivery(load, read_all(cluster.bootstrap, topic, ends))


def test_fm47_a_wiped_node_does_not_vote_before_it_knows_what_it_knew(fresh: Cluster) -> None:
    """What two nodes have decided survives when one of them loses its disk."""
    fresh.start(*NODES)
    controller = fresh.controller()
    stale = next(n for n in NODES if n != controller)
    wiped = next(n for n in NODES if n not in {controller, stale})
    fresh.kill(stale)
    fresh.create("decided", 1, rf=2)
    fresh.kill(controller, wiped)
    fresh.wipe(wiped)
    # The stale node and the wiped one are a majority that does not know the topic.
    fresh.launch(stale, wiped)
    time.sleep(4)
    fresh.launch(controller)
    fresh.wait_ready(*NODES)
    eventually(lambda: {one.name for one in fresh.metadata().topics} == {"decided"})


def test_fm39_a_node_that_was_down_knows_what_happened(cluster: Cluster) -> None:
    victim = next(n for n in NODES if n != cluster.controller())
    cluster.kill(victim)
    names = [f"while-down-{n}" for n in range(20)]
    for name in names:
        cluster.create(name, 1, rf=2)
    cluster.start(victim)
    found = {one.name for one in cluster.metadata(port=cluster.ports[victim]).topics}
    assert set(names) <= found
    for name in names:
        cluster.delete(name)
    eventually(
        lambda: (
            not any(
                one.name in names for one in cluster.metadata(port=cluster.ports[victim]).topics
            )
        )
    )


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_fm48_a_topic_is_created_while_the_controller_is_gone(cluster: Cluster, how: str) -> None:
    victim = cluster.controller()
    survivor = next(n for n in NODES if n != victim)
    wanted = create_topics.CreatableTopic(name=f"{how}ed", num_partitions=3, replication_factor=2)
    request = create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
    answers = []
    if how == "kill":
        cluster.kill(victim)
    else:
        cluster.pause(victim)
    asking = threading.Thread(target=lambda: answers.append(ask(cluster.ports[survivor], request)))
    asking.start()
    asking.join()
    assert answers[0].topics[0].error_code == 0, answers[0].topics[0]
    cluster.resume(victim) if how == "pause" else cluster.start(victim)
    port = cluster.ports[victim]  # it may not know yet that it no longer decides
    eventually(lambda: any(one.name == f"{how}ed" for one in cluster.metadata(port=port).topics))
    cluster.delete(f"{how}ed")


def test_fm38_many_partitions_get_leaders_and_survive_a_restart(cluster: Cluster) -> None:
    began = time.monotonic()
    cluster.create("many", 300)
    assert time.monotonic() - began < 10
    states = cluster.partitions("many")
    led = [sum(one.leader_id == node for one in states.values()) for node in NODES]
    assert led == [100, 100, 100]
    cluster.kill(*NODES)
    cluster.start(*NODES)
    cluster.wait_full_isr("many")
    for node in NODES:
        assert len(cluster.partitions("many", cluster.ports[node])) == 300
    cluster.delete("many")


def test_fm58_a_topic_created_anew_is_empty_on_every_replica(cluster: Cluster) -> None:
    for round_number in range(3):
        cluster.create("again", 3)
        for partition in range(3):
            for n in range(round_number + 1):
                request = produce_request("again", b"%d" % n, partition=partition)
                answer = ask(cluster.any_port(), request, 9).responses[0].partition_responses[0]
                assert (answer.error_code, answer.base_offset) == (0, n)
        cluster.check_replicas_equal("again")
        cluster.delete("again")
