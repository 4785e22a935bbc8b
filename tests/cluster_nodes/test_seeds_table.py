"""The table of the notes that started the project: what is produced is consumed, all, once."""

import time
import uuid
import warnings
from collections import Counter

import pytest
from tests.cluster_nodes.kit import NODES, Cluster

with warnings.catch_warnings():  # its import of its own schemas is deprecated in Python 3.11
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

pytestmark = pytest.mark.integration
SECONDS_MAX = 60.0


@pytest.mark.parametrize(
    "count", [5_000, pytest.param(500_000, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])]
)
@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("acks", [1, "all"])
def test_everything_is_consumed_once(
    cluster: Cluster, topic: str, acks: int | str, servers: int, count: int
) -> None:
    bootstrap = cluster.bootstrap.split(",")[:servers]
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks=acks, linger_ms=5)
    began = time.monotonic()
    run = uuid.uuid4().hex[:8]
    sent = [producer.send(topic, b"%s-%d" % (run.encode(), n)) for n in range(count)]
    producer.flush(SECONDS_MAX)
    placed = [future.get(0) for future in sent]
    producer.close()
    assert len({(one.partition, one.offset) for one in placed}) == count, "shared offsets"

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
    found: Counter[bytes] = Counter()
    while found.total() < count and time.monotonic() - began < SECONDS_MAX:
        for records in consumer.poll(200, max_records=5_000).values():
            found.update(record.value for record in records)
    consumer.close()
    assert len(found) == count, f"{100 * len(found) / count} % consumed"
    assert found.total() == count, "duplicates"
    ends = {p: {cluster.end_offset(topic, p, cluster.ports[n]) for n in NODES} for p in range(3)}
    assert all(len(one) == 1 for one in ends.values()), "fm24: nodes disagree on the watermark"
    assert sum(next(iter(one)) for one in ends.values()) == count
    cluster.check_replicas_equal(topic)
