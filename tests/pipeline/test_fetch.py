"""Raw Fetch: offsets, ranges, and what to say when records are gone."""

import pytest
from confluent_kafka import KafkaException, Producer
from tests.pipeline.kit import QUIET, Log, numbered

from chronik.pipeline.client import EARLIEST, LATEST, READ_COMMITTED, Cluster, ClusterError
from chronik.pipeline.fetch import DataLoss, OffsetRange, read_range

pytestmark = pytest.mark.integration


def test_a_range_is_read_to_its_end_and_not_beyond(log: Log) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 5_000), **{"compression.type": "zstd", "batch.num.messages": 700})
    batches = list(read_range(log.bootstrap, OffsetRange(topic, 0, 1_234, 4_321)))
    offsets = [row for one in batches for row in one.column("offset").to_pylist()]
    values = [row for one in batches for row in one.column("value").to_pylist()]
    assert offsets == list(range(1_234, 4_321))
    assert values == [value for _, value in numbered(1_234, 4_321)]


def test_offsets_at_the_ends_and_by_time(log: Log) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 10), partition=0)
    with Cluster(log.bootstrap) as cluster:
        both = cluster.partitions([topic])
        assert cluster.offsets(dict.fromkeys(both, EARLIEST)) == {(topic, 0): 0, (topic, 1): 0}
        assert cluster.offsets(dict.fromkeys(both, LATEST)) == {(topic, 0): 10, (topic, 1): 0}
        assert cluster.offsets(dict.fromkeys(both, 1)) == {(topic, 0): 0, (topic, 1): -1}


def test_a_topic_that_does_not_exist_is_named(log: Log) -> None:
    with Cluster(log.bootstrap) as cluster, pytest.raises(ClusterError, match="'nowhere'"):
        cluster.partitions(["nowhere"])


def test_records_that_were_deleted_are_a_data_loss(log: Log) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 10))
    with pytest.raises(DataLoss, match="offset 500"):
        list(read_range(log.bootstrap, OffsetRange(topic, 0, 500, 510)))


def test_records_that_are_gone_are_passed_over_where_that_is_wanted(log: Log) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 100), **{"batch.num.messages": 10})
    log.delete_before(topic, 0, 40)
    wanted = OffsetRange(topic, 0, 20, 60)
    with pytest.raises(DataLoss, match="offset 20"):
        list(read_range(log.bootstrap, wanted))
    batches = list(read_range(log.bootstrap, wanted, fail_on_data_loss=False))
    offsets = [row for one in batches for row in one.column("offset").to_pylist()]
    assert offsets == list(range(40, 60))
    gone = OffsetRange(topic, 0, 0, 30)
    assert list(read_range(log.bootstrap, gone, fail_on_data_loss=False)) == []


def test_read_committed_leaves_out_what_was_aborted(log: Log) -> None:
    topic = log.topic()
    settings = QUIET | {"bootstrap.servers": log.bootstrap, "transactional.id": topic}
    producer = Producer(settings)
    try:
        producer.init_transactions(10)
    except KafkaException as error:
        pytest.skip(f"transactions are not served: {error}")
    for number in range(20):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush()
        if number % 2:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    with Cluster(log.bootstrap) as cluster:
        end = cluster.offsets({(topic, 0): LATEST}, READ_COMMITTED)[topic, 0]
    wanted = OffsetRange(topic, 0, 0, end)
    committed = list(read_range(log.bootstrap, wanted, isolation=READ_COMMITTED))
    values = [value for one in committed for value in one.column("value").to_pylist()]
    assert values == [b"%d" % number for number in range(1, 20, 2)]
    assert end == 40
    everything = list(read_range(log.bootstrap, wanted))
    assert sum(one.num_rows for one in everything) == 20
