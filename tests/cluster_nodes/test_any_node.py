"""Any node serves any client, and the answers about replicas are the truth."""

import socket
import struct
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.clients.batches import DEFAULT_TIME_MS
from tests.cluster_nodes.kit import NODES, Cluster, ask, eventually
from tests.cluster_nodes.load import CLIENT
from tests.faults.nodes import fetch_request, frame_of, produce_request

from chronik.model.errors import ErrorCode
from chronik.wire.messages import delete_records
from chronik.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from chronik.wire.records import scan

pytestmark = pytest.mark.integration
MAX_TIMESTAMP = -3


def produce(
    cluster: Cluster, node: int, topic: str, *values: bytes, acks: int = -1, partition: int = 0
) -> tuple[int, int]:
    """Error code and base offset, from a node of the test's choice."""
    request = produce_request(topic, *values, acks=acks, partition=partition)
    one = ask(cluster.ports[node], request, 9).responses[0].partition_responses[0]
    return one.error_code, one.base_offset


def fetch_code(cluster: Cluster, node: int, topic: str, offset: int) -> int:
    answer = ask(cluster.ports[node], fetch_request(topic, offset), 12)
    return int(answer.responses[0].partitions[0].error_code)


def forwarded(cluster: Cluster, node: int, api: str) -> float:
    return sum(
        value
        for name, value in cluster.metrics(node).items()
        if name.startswith("chronik_forwarded_requests") and f'"{api}"' in name
    )


def not_leader(cluster: Cluster, node: int) -> float:
    return sum(value for name, value in cluster.metrics(node).items() if "NOT_LEADER" in name)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_to_the_wrong_node_gets_the_leaders_offsets(
    cluster: Cluster, topic: str, acks: int
) -> None:
    follower = cluster.followers(topic)[0]
    before, refused = forwarded(cluster, follower, "Produce"), not_leader(cluster, follower)
    offsets = [produce(cluster, follower, topic, b"a", b"b", acks=acks) for _ in range(5)]
    assert offsets == [(0, 2 * n) for n in range(5)]
    assert forwarded(cluster, follower, "Produce") - before == 5
    assert not_leader(cluster, follower) == refused, "no NOT_LEADER storms"


def test_acks_0_to_the_wrong_node_arrives(cluster: Cluster, topic: str) -> None:
    frame = frame_of(produce_request(topic, b"a", acks=0), 9)
    follower = cluster.followers(topic)[0]
    with socket.create_connection(("127.0.0.1", cluster.ports[follower])) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        eventually(lambda: cluster.end_offset(topic) == 1)


def test_fm24_list_offsets_and_fetch_agree_on_every_node(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader(topic)
    for n in range(3):
        assert produce(cluster, leader, topic, b"x") == (0, n)
    for node in NODES:
        assert cluster.end_offset(topic, 0, cluster.ports[node]) == 3
        eventually(lambda node=node: watermark(cluster, node, topic) == 3, 2)  # type: ignore[misc]


def watermark(cluster: Cluster, node: int, topic: str) -> int:
    answer = ask(cluster.ports[node], fetch_request(topic, 0), 12)
    return int(answer.responses[0].partitions[0].high_watermark)


def test_fm24_no_timestamp_leads_beyond_the_watermark(cluster: Cluster, topic: str) -> None:
    """Nor the largest one: a consumer must not be sent to what a new leader may not have."""
    leader, later_ms = cluster.leader(topic), DEFAULT_TIME_MS + 1000
    port = cluster.ports[leader]
    assert produce(cluster, leader, topic, b"committed") == (0, 0)
    assert cluster.list_offset(topic, 0, MAX_TIMESTAMP, port) == 0
    followers = cluster.followers(topic)
    for node in followers:
        cluster.pause(node)
    newest = produce_request(topic, b"on the leader only", acks=1, time_ms=later_ms)
    one = ask(port, newest, 9).responses[0].partition_responses[0]
    assert (one.error_code, one.base_offset) == (0, 1)
    assert cluster.end_offset(topic, port=port) == 1
    assert cluster.list_offset(topic, 0, MAX_TIMESTAMP, port) == -1
    assert cluster.list_offset(topic, 0, later_ms, port) == -1
    for node in followers:
        cluster.resume(node)
    eventually(lambda: cluster.list_offset(topic, 0, MAX_TIMESTAMP) == 1)
    assert cluster.list_offset(topic, 0, later_ms) == 1


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_fm25_the_watermark_reaches_every_replica_after_the_last_record(
    cluster: Cluster, topic: str, acks: int
) -> None:
    """Nothing is produced afterwards that could carry it along."""
    frame = frame_of(produce_request(topic, b"last", acks=acks), 9)
    port = cluster.ports[cluster.leader(topic)]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        for node in NODES:
            eventually(lambda node=node: watermark(cluster, node, topic) == 1, 3)  # type: ignore[misc]


def test_fm29_the_controller_appends_nothing_to_what_another_node_leads(
    cluster: Cluster, topic: str
) -> None:
    controller = cluster.controller()
    states = cluster.partitions(topic)
    led = next(one for one, state in states.items() if state.leader_id != controller)
    leader = states[led].leader_id
    # Alone the leader takes acks=1; what the controller had appended itself would differ.
    offsets = [
        produce(cluster, node, topic, b"from %d" % node, acks=1, partition=led)
        for node in (controller, leader) * 5
    ]
    assert offsets == [(0, n) for n in range(10)]
    eventually(lambda: cluster.end_offset(topic, led) == 10)
    cluster.check_replicas_equal(topic)
    epochs = {
        header.leader_epoch
        for _, header in scan(memoryview(cluster.log_bytes(controller, topic, led, 10)))
    }
    assert epochs == {states[led].leader_epoch}


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_fm70_a_new_leader_knows_the_sequences_that_the_old_one_took(
    cluster: Cluster, topic: str, acks: int
) -> None:
    """Whatever the acks were: the retry is a duplicate, the next one is in order, a gap is not."""
    victim = cluster.leader(topic)
    for sequence in range(3):
        send_numbered(cluster, victim, topic, sequence, acks)
    for node in NODES:
        eventually(lambda node=node: watermark(cluster, node, topic) == 3)  # type: ignore[misc]
    cluster.kill(victim)
    eventually(lambda: cluster.leader(topic) not in {victim, -1})
    leader = cluster.leader(topic)
    assert send_numbered(cluster, leader, topic, 2) == (0, 2)
    assert send_numbered(cluster, leader, topic, 3) == (0, 3)
    assert send_numbered(cluster, leader, topic, 9)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert cluster.end_offset(topic) == 4


def send_numbered(
    cluster: Cluster, node: int, topic: str, sequence: int, acks: int = -1
) -> tuple[int, int]:
    """One batch of an idempotent producer; acks=0 has no answer."""
    fields = {"producer_id": 4711, "producer_epoch": 0, "sequence": sequence}
    request = produce_request(topic, b"%d" % sequence, acks=acks, **fields)
    if acks:
        one = ask(cluster.ports[node], request, 9).responses[0].partition_responses[0]
        return one.error_code, one.base_offset
    frame = frame_of(request, 9)
    with socket.create_connection(("127.0.0.1", cluster.ports[node])) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        eventually(lambda: watermark(cluster, node, topic) == sequence + 1)
    return 0, sequence


def test_fm32_a_lagging_replica_does_not_call_an_offset_out_of_range(
    cluster: Cluster, topic: str
) -> None:
    """A consumer would start over, or skip; it is sent to the leader instead."""
    leader = cluster.leader(topic)
    eventually(lambda: produce(cluster, leader, topic, b"x") == (0, 0))
    for node in cluster.followers(topic):
        assert fetch_code(cluster, node, topic, 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch_code(cluster, leader, topic, 2) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_fm35_every_node_lists_every_broker(cluster: Cluster) -> None:
    for node in NODES:
        brokers = cluster.metadata(port=cluster.ports[node]).brokers
        assert {(one.node_id, one.port) for one in brokers} == set(cluster.ports.items())


def test_fm37_auto_create_through_any_node_gives_leader_and_full_isr(cluster: Cluster) -> None:
    for node in NODES:
        name = f"auto-{node}"
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
        )
        ask(cluster.ports[node], request)
        eventually(lambda name=name: cluster.leader(name) >= 0, 2)  # type: ignore[misc]
        (code, offset) = produce(cluster, node, name, b"x")
        assert (code, offset) == (0, 0)
        assert len(cluster.partitions(name)[0].isr_nodes) == 3
        cluster.delete(name)


def test_fm28_min_insync_replicas(cluster: Cluster, topic: str) -> None:
    leader, (one, two) = cluster.leader(topic), cluster.followers(topic)
    assert produce(cluster, leader, topic, b"0") == (0, 0)
    cluster.kill(one)
    eventually(lambda: len(cluster.partitions(topic)[0].isr_nodes) == 2)
    assert produce(cluster, leader, topic, b"1") == (0, 1)
    # With two of three down nobody decides: the batch is appended and never confirmed.
    cluster.kill(two)
    code, _ = produce(cluster, leader, topic, b"2")
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert cluster.end_offset(topic, 0, cluster.ports[leader]) == 2
    cluster.start(one, two)
    cluster.wait_full_isr(topic)
    assert produce(cluster, cluster.leader(topic), topic, b"3")[0] == 0


def test_fm28_too_small_an_isr_is_refused_before_the_append(cluster: Cluster) -> None:
    cluster.create("strict", 1, min_insync_replicas="3")
    leader, controller = cluster.leader("strict"), cluster.controller()
    # A controller that dies is replaced first, which is another test's matter.
    victim = next(one for one in cluster.followers("strict") if one != controller)
    assert produce(cluster, leader, "strict", b"0") == (0, 0)
    cluster.kill(victim)
    began = time.monotonic()
    code, _ = produce(cluster, leader, "strict", b"1")
    assert code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode(code)
    assert time.monotonic() - began < 5
    code, _ = produce(cluster, leader, "strict", b"2")
    assert code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert produce(cluster, leader, "strict", b"3", acks=1)[0] == 0
    cluster.start(victim)
    cluster.wait_full_isr("strict")
    assert produce(cluster, leader, "strict", b"4") == (0, 3)
    cluster.delete("strict")


def test_fm27_deleted_records_stay_deleted_on_every_replica(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader(topic)
    for n in range(10):
        assert produce(cluster, leader, topic, b"%d" % n) == (0, n)
    wanted = delete_records.DeleteRecordsPartition(partition_index=0, offset=7)
    topics = [delete_records.DeleteRecordsTopic(name=topic, partitions=[wanted])]
    request = delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=5_000)
    answer = ask(cluster.ports[leader], request)
    assert answer.topics[0].partitions[0].low_watermark == 7
    cluster.kill(*NODES)
    cluster.start(*NODES)
    eventually(lambda: cluster.list_offset(topic, 0, -2) == 7)
    for node in NODES:
        assert fetch_code(cluster, node, topic, 6) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_fm68_a_group_survives_the_death_of_its_coordinator(cluster: Cluster, topic: str) -> None:
    config = {
        **CLIENT,
        "bootstrap.servers": cluster.bootstrap,
        "group.id": f"group-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 300,
    }
    for partition in range(3):
        for n in range(10):
            request = produce_request(topic, b"%d" % n, partition=partition)
            ask(cluster.ports[1], request, 9)
    members = [Consumer(config), Consumer(config)]
    try:
        for member in members:
            member.subscribe([topic])
        seen = consume(members, 30)
        assert len(seen) == 30
        for member in members:
            member.commit(asynchronous=False)
        offsets_topic = cluster.partitions("__consumer_offsets")
        used = [p for p in offsets_topic if cluster.end_offset("__consumer_offsets", p) > 0]
        victim = offsets_topic[used[-1]].leader_id
        cluster.kill(victim)
        alive = next(node for node in NODES if node != victim)
        eventually(lambda: produce(cluster, alive, topic, b"new", partition=1) == (0, 10))
        assert consume(members, 1) == [(1, 10)], "from where it was, nothing twice"
        cluster.start(victim)
        every = [TopicPartition(topic, p) for p in range(3)]
        members[0].commit(offsets=[TopicPartition(topic, 1, 11)], asynchronous=False)
        committed = [one.offset for one in members[0].committed(every, timeout=10)]
        assert committed == [10, 11, 10]
    finally:
        for member in members:
            member.close()


def consume(members: list[Consumer], count: int) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    limit = time.monotonic() + 30
    while len(seen) < count:
        assert time.monotonic() < limit, f"only {len(seen)} of {count} came"
        for member in members:
            message: Any = member.poll(0.05)
            if message is not None and message.error() is None:
                seen.append((message.partition(), message.offset()))
    return seen
