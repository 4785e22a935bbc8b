"""Nodes die, hang and come back under load: nothing acknowledged is lost, twice or out of order."""

import time

import pytest
from tests.cluster_nodes.kit import NODES, Cluster, ask, eventually
from tests.cluster_nodes.load import Load, check_delivery, read_all
from tests.faults.nodes import produce_request

from chronik.broker.sessions import SESSION_TIMEOUT_S

pytestmark = pytest.mark.integration
PARTITIONS = 3
FAILOVER_SECONDS_MAX = 3.0


def verify(cluster: Cluster, topic: str, load: Load) -> None:
    cluster.check_replicas_equal(topic)
    ends = {one: cluster.end_offset(topic, one) for one in range(PARTITIONS)}
    check_delivery(load, read_all(cluster.bootstrap, topic, ends))


def led_by(cluster: Cluster, topic: str, node: int) -> list[int]:
    return [p for p, state in cluster.partitions(topic).items() if state.leader_id == node]


def is_led_by_others(cluster: Cluster, topic: str, node: int) -> bool:
    return all(state.leader_id not in {node, -1} for state in cluster.partitions(topic).values())


def test_a_dead_leader_is_replaced_within_three_seconds(cluster: Cluster, topic: str) -> None:
    victim = next(n for n in NODES if n != cluster.controller() and led_by(cluster, topic, n))
    cluster.create("quick", PARTITIONS)
    alive = [p for p in range(PARTITIONS) if p not in led_by(cluster, "quick", victim)]
    with (
        Load(cluster.bootstrap, topic, PARTITIONS) as load,
        Load(cluster.bootstrap, "quick", PARTITIONS, acks="1") as quick,
    ):
        load.wait_acked(200)
        since = time.monotonic()
        cluster.kill(victim)
        eventually(lambda: is_led_by_others(cluster, topic, victim))
        load.wait_acked(300)
        quick.wait_acked(300)
        gaps = {p: load.longest_gap_s(p, since - 0.2) for p in range(PARTITIONS)}
        cluster.start(victim)
        cluster.wait_full_isr(topic)
        load.wait_acked(200)
    verify(cluster, topic, load)
    assert max(gaps.values()) < FAILOVER_SECONDS_MAX, gaps
    # Leaders that live serve acks=1 on; acks=all waits until the dead replica has left the ISR.
    unaffected = {p: quick.longest_gap_s(p, since - 0.2) for p in alive}
    assert max(unaffected.values()) < 1.0, unaffected
    cluster.check_replicas_equal("quick")
    cluster.delete("quick")


def test_the_controller_is_killed(cluster: Cluster, topic: str) -> None:
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_acked(200)
        victim = cluster.controller()
        cluster.kill(victim)
        eventually(lambda: cluster.controller() not in {victim, -1})
        eventually(lambda: is_led_by_others(cluster, topic, victim))
        load.wait_acked(200)
        cluster.start(victim)
        cluster.wait_full_isr(topic)
        load.wait_acked(200)
    verify(cluster, topic, load)


def test_two_nodes_are_killed_and_come_back(cluster: Cluster, topic: str) -> None:
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_acked(200)
        cluster.kill(1, 3)
        time.sleep(0.5)
        cluster.start(3)
        load.wait_acked(200)
        cluster.start(1)
        cluster.wait_full_isr(topic)
        load.wait_acked(200)
    verify(cluster, topic, load)


def test_all_nodes_are_killed_and_come_back(cluster: Cluster, topic: str) -> None:
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_acked(300)
        cluster.kill(*NODES)
        cluster.start(*NODES)
        load.wait_acked(200)
    verify(cluster, topic, load)


@pytest.mark.parametrize("who", ["leader", "controller"])
def test_a_node_hangs_longer_than_its_session(cluster: Cluster, topic: str, who: str) -> None:
    controller = cluster.controller()
    victim = controller if who == "controller" else next(n for n in NODES if n != controller)
    port = next(cluster.ports[n] for n in NODES if n != victim)
    others = [n for n in NODES if n != victim]
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_acked(200)
        cluster.pause(victim)
        time.sleep(SESSION_TIMEOUT_S)
        eventually(
            lambda: all(
                state.leader_id in others for state in cluster.partitions(topic, port).values()
            )
        )
        load.wait_acked(100)
        time.sleep(1.5)
        states = cluster.partitions(topic, port).values()
        assert all(len(state.isr_nodes) == 2 for state in states), "a node that lives was fenced"
        cluster.resume(victim)
        cluster.wait_full_isr(topic)
        load.wait_acked(200)
    verify(cluster, topic, load)


def test_fm50_a_leader_that_was_replaced_while_it_hung_confirms_nothing_of_its_own(
    cluster: Cluster, topic: str
) -> None:
    """It wakes up believing that it leads: what it confirms is in the new leader's log."""
    victim = cluster.leader(topic)
    others = [node for node in NODES if node != victim]
    port = cluster.ports[others[0]]
    cluster.pause(victim)
    eventually(lambda: cluster.leader(topic, port=port) in others)
    assert send(port, topic, b"new")[0] == 0
    cluster.resume(victim)
    told = {b"%d" % n: send(cluster.ports[victim], topic, b"%d" % n) for n in range(20)}
    cluster.wait_full_isr(topic)
    assert send(cluster.ports[victim], topic, b"after")[0] == 0
    found = read_all(cluster.bootstrap, topic, {0: cluster.end_offset(topic)})
    for value, (code, offset) in told.items():
        assert code or found[0, offset] == value
    cluster.check_replicas_equal(topic)


def send(port: int, topic: str, value: bytes) -> tuple[int, int]:
    """Error code and base offset of an acks=all produce."""
    answer = ask(port, produce_request(topic, value), 9)
    one = answer.responses[0].partition_responses[0]
    return one.error_code, one.base_offset


def test_a_rolling_restart_is_not_noticed(cluster: Cluster, topic: str) -> None:
    with Load(cluster.bootstrap, topic, PARTITIONS) as load:
        load.wait_acked(200)
        for node in NODES:
            assert cluster.stop(node) < 5
            cluster.start(node)
            cluster.wait_full_isr(topic)
        load.wait_acked(200)
        gaps = {p: load.longest_gap_s(p) for p in range(PARTITIONS)}
    verify(cluster, topic, load)
    assert max(gaps.values()) < 2.0, gaps
