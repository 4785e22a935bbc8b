"""The metadata log on real disks and networks: on disk before it is acted on, whole, in order."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.batches import Batch
from tests.cluster_nodes.kit import NODES, Cluster, ask, eventually
from tests.cluster_nodes.load import Load, check_delivery, read_all
from tests.cluster_nodes.machines import Machines
from tests.cluster_nodes.proxies import Network
from tests.faults.nodes import produce_request

from chronik.broker.sessions import SESSION_TIMEOUT_S
from chronik.model.errors import ErrorCode
from chronik.wire.messages import create_topics, describe_quorum, init_producer_id, produce

pytestmark = pytest.mark.integration
SLOW_S = 0.15
"""Of each write and of each sync: together less than an election timeout."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("metadata")
    with Cluster(directory, proxied=True, faulty=True).running() as running:
        yield running


@pytest.fixture
def network(cluster: Cluster) -> Network:
    assert cluster.network is not None
    return cluster.network


@pytest.fixture
def machines(cluster: Cluster) -> Machines:
    assert cluster.machines is not None
    return cluster.machines


def creation(**partitions: int) -> create_topics.CreateTopicsRequest:
    topics = [
        create_topics.CreatableTopic(name=name, num_partitions=count, replication_factor=3)
        for name, count in partitions.items()
    ]
    return create_topics.CreateTopicsRequest(topics=topics, timeout_ms=10_000)


def catalogue(cluster: Cluster, node: int) -> dict[str, Any]:
    """What a node says of all topics: ids, replicas, leaders and epochs."""
    return {
        topic.name: (
            topic.topic_id,
            [
                (one.partition_index, one.leader_id, one.leader_epoch, tuple(one.replica_nodes))
                for one in topic.partitions
            ],
        )
        for topic in cluster.metadata(port=cluster.ports[node]).topics
    }


def committed(cluster: Cluster) -> int:
    """How far the metadata log is decided."""
    topics = [
        describe_quorum.RequestTopicData(
            topic_name="__cluster_metadata",
            partitions=[describe_quorum.RequestPartitionData(partition_index=0)],
        )
    ]
    answer = ask(cluster.any_port(), describe_quorum.DescribeQuorumRequest(topics=topics))
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    return int(answer.topics[0].partitions[0].high_watermark)


def test_fm33_replicas_are_nodes_that_exist_whoever_is_asked(cluster: Cluster) -> None:
    for node in NODES:
        names = [f"placed-{node}-{n}" for n in range(4)]
        answer = ask(cluster.ports[node], creation(**dict.fromkeys(names, 3)))
        assert {one.error_code for one in answer.topics} == {0}
        for name in names:
            states = cluster.partitions(name, cluster.ports[node]).values()
            assert all(set(one.replica_nodes) == set(NODES) for one in states)
            assert {one.leader_id for one in states} == set(NODES)
            cluster.delete(name)
    too_many = create_topics.CreatableTopic(name="x", num_partitions=1, replication_factor=4)
    (result,) = ask(cluster.any_port(), create_topics.CreateTopicsRequest(topics=[too_many])).topics
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_fm34_many_topics_with_many_counts_reach_every_node(cluster: Cluster) -> None:
    wanted = {f"many-{n}": n % 7 + 1 for n in range(40)}
    answer = ask(cluster.ports[2], creation(**wanted))
    assert {one.name: one.num_partitions for one in answer.topics} == wanted
    assert {one.error_code for one in answer.topics} == {0}
    for node in NODES:

        def has_all(node: int = node) -> bool:
            found = catalogue(cluster, node)
            return {name: len(found[name][1]) for name in wanted} == wanted

        eventually(has_all, 5)
    for name in wanted:
        cluster.delete(name)


def test_fm36_brokers_register_although_the_first_election_is_slow(tmp_path: Path) -> None:
    """Votes and terms go to disks that need longer than an election timeout."""
    cluster = Cluster(tmp_path, faulty=True)
    assert cluster.machines is not None
    try:
        for node in NODES:
            cluster.machines.slow_disk(node, 0.8)
        cluster.launch(*NODES)
        time.sleep(3)
        cluster.machines.heal()
        cluster.wait_ready(*NODES)
        for node in NODES:
            port = cluster.ports[node]
            eventually(
                lambda port=port: (  # type: ignore[misc]
                    {one.node_id for one in cluster.metadata(port=port).brokers} == set(NODES)
                )
            )
        cluster.create("first", 3)
        cluster.check_logs()
    finally:
        cluster.close()


def test_fm40_nobody_acts_on_metadata_before_a_majority_has_it_on_disk(
    cluster: Cluster, machines: Machines
) -> None:
    for node in NODES:
        machines.slow_disk(node, SLOW_S)
    began = time.monotonic()
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(ask(cluster.any_port(), creation(slowly=1), seconds=30))
    )
    asking.start()

    def is_known(node: int) -> bool:
        return "slowly" in catalogue(cluster, node)

    eventually(lambda: any(is_known(node) for node in NODES))
    seen_s = time.monotonic() - began
    machines.heal()
    asking.join()
    assert seen_s > 2 * SLOW_S, "it was seen before a disk can have had it"
    assert answers[0].topics[0].error_code == 0
    cluster.kill(*NODES)
    cluster.start(*NODES)
    assert all(is_known(node) for node in NODES)
    cluster.delete("slowly")


def test_fm40_without_room_on_a_majority_nothing_is_decided(
    cluster: Cluster, machines: Machines
) -> None:
    controller = cluster.controller()
    others = [node for node in NODES if node != controller]
    for node in others:
        machines.full_disk(node)
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(ask(cluster.ports[controller], creation(squeezed=1)))
    )
    asking.start()
    time.sleep(1.5)
    assert not any("squeezed" in catalogue(cluster, node) for node in NODES)
    assert not answers
    machines.heal()
    asking.join()
    assert answers[0].topics[0].error_code == 0
    eventually(lambda: all("squeezed" in catalogue(cluster, node) for node in NODES))
    cluster.mend()
    cluster.delete("squeezed")


def test_fm55_a_node_with_a_slow_disk_goes_on_reporting_to_its_controller(
    cluster: Cluster, machines: Machines, topic: str
) -> None:
    """Its writes wait longer than a session lasts; its reports do not wait for them."""
    victim = next(node for node in NODES if node != cluster.controller())
    port = cluster.ports[cluster.controller()]
    machines.slow_disk(victim, SESSION_TIMEOUT_S + 0.5)
    with contextlib.suppress(OSError):  # it may not answer as soon as that
        ask(port, produce_request(topic, b"slow", acks=-1), 9, seconds=0.5)
    until = time.monotonic() + 2 * SESSION_TIMEOUT_S
    while time.monotonic() < until:
        brokers = cluster.metadata(port=port).brokers
        assert victim in {one.node_id for one in brokers}, "a node that lives was fenced"
        time.sleep(0.05)
    machines.heal()


def test_fm41_a_late_node_hears_everything_in_order(cluster: Cluster, network: Network) -> None:
    """Creations and deletions of one name, in any other order, give another catalogue."""
    late = next(node for node in NODES if node != cluster.controller())
    port = next(cluster.ports[node] for node in NODES if node != late)
    network.isolate(late)
    for n in range(10):
        ask(port, creation(again=1, **{f"kept-{n}": 2}))
        if n < 9:
            cluster.delete("again", port=port)
    before = catalogue(cluster, next(node for node in NODES if node != late))
    assert "kept-9" not in catalogue(cluster, late)
    network.heal()
    eventually(lambda: catalogue(cluster, late).keys() == before.keys())
    cluster.mend()
    assert catalogue(cluster, late)["again"][0] == before["again"][0], "another topic of that name"
    for name in ("again", *(f"kept-{n}" for n in range(10))):
        cluster.delete(name)


def test_fm42_a_node_that_was_not_there_yet_gets_what_was_sent(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        cluster.start(1, 2)
        for n in range(20):
            cluster.create(f"early-{n}", 1, rf=2)
        cluster.start(3)
        eventually(lambda: catalogue(cluster, 3).keys() == catalogue(cluster, 1).keys())
        assert len(catalogue(cluster, 3)) == 20
        cluster.check_logs()
    finally:
        cluster.close()


def test_fm43_restarts_neither_repeat_nor_skip_what_was_decided(cluster: Cluster) -> None:
    """Epochs count every decision: one applied twice, or not at all, would show in them."""
    cluster.create("counted", 3)
    for victim in NODES:
        cluster.kill(victim)
        port = next(cluster.ports[node] for node in NODES if node != victim)
        eventually(
            lambda victim=victim, port=port: (  # type: ignore[misc]
                victim
                not in {one.leader_id for one in cluster.partitions("counted", port).values()}
            )
        )
        cluster.start(victim)
        cluster.wait_full_isr("counted")
    before = agreed(cluster)
    ids = [producer_id(cluster, node) for node in NODES]
    cluster.kill(*NODES)
    cluster.start(*NODES)
    ids += [producer_id(cluster, node) for node in NODES]
    assert len(set(ids)) == 6, f"fm74: producer ids were given twice: {ids}"
    cluster.wait_full_isr("counted")
    assert agreed(cluster)["counted"][0] == before["counted"][0]
    cluster.delete("counted")


def agreed(cluster: Cluster) -> dict[str, Any]:
    """The catalogue, once all nodes have the same."""

    def is_same() -> bool:
        first, second, third = (catalogue(cluster, node) for node in NODES)
        return first == second == third

    eventually(is_same, 5, "one catalogue")
    return catalogue(cluster, NODES[0])


def producer_id(cluster: Cluster, node: int) -> int:
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000
    )
    answer = ask(cluster.ports[node], request)
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    return int(answer.producer_id)


def test_fm45_producing_decides_nothing(cluster: Cluster, topic: str) -> None:
    with Load(cluster.bootstrap, topic, 3) as load:
        load.wait_acked(100)
        before = committed(cluster)
        load.wait_acked(1000)
        assert committed(cluster) == before
    ends = {one: cluster.end_offset(topic, one) for one in range(3)}
    check_delivery(load, read_all(cluster.bootstrap, topic, ends))


def produce_by_id(topic_id: bytes, value: bytes) -> produce.ProduceRequest:
    data = produce.PartitionProduceData(index=0, records=Batch(values=(value,)).encode())
    topics = [produce.TopicProduceData(topic_id=topic_id, partition_data=[data])]
    return produce.ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics)


def test_fm49_data_that_is_ahead_of_its_metadata_waits(cluster: Cluster, network: Network) -> None:
    """A client has a topic's id from one node and is at its leader before the metadata is."""
    late = next(node for node in NODES if node != cluster.controller())
    knowing = cluster.ports[cluster.controller()]
    for node in NODES:
        if node != late:
            network.cut(node, late)
    answer = ask(knowing, creation(ahead=6))
    assert answer.topics[0].error_code == 0
    states = cluster.partitions("ahead", knowing)
    led = next(index for index, one in states.items() if one.leader_id == late)
    request = produce_by_id(answer.topics[0].topic_id, b"early")
    request.topic_data[0].partition_data[0].index = led
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(ask(cluster.ports[late], request, 13)))
    asking.start()
    time.sleep(0.3)
    assert not answers, f"it did not wait: {answers[0].responses}"
    network.heal()
    asking.join()
    (one,) = answers[0].responses[0].partition_responses
    assert (one.error_code, one.base_offset) == (0, 0), ErrorCode(one.error_code)
    cluster.mend()
    cluster.delete("ahead")


def test_fm49_a_topic_that_never_comes_is_refused(cluster: Cluster) -> None:
    began = time.monotonic()
    answer = ask(cluster.ports[1], produce_by_id(b"\x07" * 16, b"lost"), 13)
    (one,) = answer.responses[0].partition_responses
    assert one.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert time.monotonic() - began < 3


def test_fm49_a_node_without_its_metadata_does_not_call_topics_unknown(
    cluster: Cluster, topic: str
) -> None:
    """Others forward to a wiped node that is just coming back; no producer may give up."""
    codes: set[int] = set()
    for _ in range(3):
        victim = cluster.leader(topic)
        port = next(cluster.ports[node] for node in NODES if node != victim)
        cluster.kill(victim)
        cluster.wipe(victim)
        cluster.launch(victim)
        until = time.monotonic() + 2
        while time.monotonic() < until:
            answer = ask(port, produce_request(topic, b"x", acks=1), 9)
            codes.add(answer.responses[0].partition_responses[0].error_code)
        cluster.mend()
    assert codes <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}, codes
