"""Spark's own Kafka connector as a judge: it reads and writes Chronik, and finds the same rows."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from tests.pipeline.conftest import CONNECTOR
from tests.pipeline.kit import QUIET, Log, numbered

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.skipif(
        not any(CONNECTOR.glob("*.jar")),
        reason="no connector: bench/spark-kafka.sh fetches its four jars",
    ),
]
FORMATS = ("kafka", "chronik")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def options(log: Log, topic: str, **more: str) -> dict[str, str]:
    named = {name.replace("__", "."): value for name, value in more.items()}
    where = {"kafka.bootstrap.servers": log.bootstrap, "subscribe": topic}
    return where | {"includeHeaders": "true"} | named


def rows(frame: Any) -> list[Any]:
    """In the order of the log, everything that a record has."""
    return sorted(map(tuple, frame.collect()), key=lambda row: (row[2], row[3], row[4]))


def batch(spark: Any, name: str, log: Log, topic: str, **more: str) -> list[Any]:
    return rows(spark.read.format(name).options(**options(log, topic, **more)).load())


def stream(spark: Any, name: str, log: Log, topic: str, folder: Path, **more: str) -> list[Any]:
    """The rows of a query with availableNow."""
    found: list[Any] = []
    given = options(log, topic, startingOffsets="earliest", **more)
    reading = spark.readStream.format(name).options(**given).load()
    writer = reading.writeStream.foreachBatch(lambda frame, _: found.extend(rows(frame)))
    writer = writer.option("checkpointLocation", str(folder / name)).trigger(availableNow=True)
    assert writer.start().awaitTermination(120)
    return sorted(found, key=lambda row: (row[2], row[3], row[4]))


def mixed(log: Log) -> str:
    """A topic with every codec, nulls, empty values and headers."""
    topic = log.topic(3)
    for codec in CODECS:
        log.send(topic, numbered(0, 400), **{"compression.type": codec})
    log.send(topic, [(None, b"x"), (b"k", None), (b"", b""), (None, None)], partition=1)
    producer = Producer(QUIET | {"bootstrap.servers": log.bootstrap})
    for number in range(50):
        headers: list[tuple[str, str | bytes | None]] = [
            ("number", b"%d" % number),
            ("none", None),
            ("number", b""),
        ]
        producer.produce(topic, b"%d" % number, headers=headers, timestamp=1 + number)
    assert producer.flush(30) == 0
    return topic


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_both_read_the_same_rows(spark: Any, log: Log, isolation: str) -> None:
    topic, level = mixed(log), {"kafka__isolation__level": isolation}
    theirs, ours = (batch(spark, name, log, topic, **level) for name in FORMATS)
    assert len(theirs) == len(CODECS) * 400 + 54
    assert ours == theirs


def test_both_read_the_same_range_of_offsets(spark: Any, log: Log) -> None:
    topic = mixed(log)
    some = {
        "startingOffsets": f'{{"{topic}": {{"0": 7, "1": -2, "2": 100}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 300, "1": -1, "2": 101}}}}',
    }
    theirs, ours = (batch(spark, name, log, topic, **some) for name in FORMATS)
    assert ours == theirs
    assert len(ours) > 294


def test_both_find_nothing_in_an_empty_topic(spark: Any, log: Log) -> None:
    topic = log.topic(2)
    assert [batch(spark, name, log, topic) for name in FORMATS] == [[], []]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_both_stream_the_same_rows(spark: Any, log: Log, tmp_path: Path, isolation: str) -> None:
    topic = mixed(log)
    limit = {"maxOffsetsPerTrigger": "700", "kafka__isolation__level": isolation}
    theirs, ours = (stream(spark, name, log, topic, tmp_path, **limit) for name in FORMATS)
    assert ours == theirs
    assert ours == batch(spark, "chronik", log, topic)


def test_both_leave_out_what_was_aborted(spark: Any, log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    producer = Producer(QUIET | {"bootstrap.servers": log.bootstrap, "transactional.id": topic})
    try:
        producer.init_transactions(10)
    except KafkaException as error:
        pytest.skip(f"transactions are not served: {error}")
    for number in range(20):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d.%d" % (number, part))
        producer.flush()
        if number % 3:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    committed = {"kafka__isolation__level": "read_committed"}
    theirs, ours = (batch(spark, name, log, topic, **committed) for name in FORMATS)
    assert ours == theirs
    assert len(ours) == 13 * 3
    theirs, ours = (stream(spark, name, log, topic, tmp_path, **committed) for name in FORMATS)
    assert ours == theirs
    theirs, ours = (batch(spark, name, log, topic) for name in FORMATS)
    assert ours == theirs
    assert len(ours) == 20 * 3


@pytest.mark.parametrize("name", FORMATS)
def test_rows_of_a_batch_write_are_read_by_both(spark: Any, log: Log, name: str) -> None:
    topic = log.topic(2)
    frame = spark.sql(
        "SELECT string(id) AS key, concat('v', id) AS value, int(id % 2) AS partition, "
        "array(named_struct('key', 'h', 'value', binary('x'))) AS headers FROM range(500)"
    )
    given = options(log, topic) | {"topic": topic}
    frame.write.format(name).options(**given).mode("append").save()
    theirs, ours = (batch(spark, reader, log, topic) for reader in FORMATS)
    assert ours == theirs
    found = {(bytes(row[0]), bytes(row[1]), row[3]) for row in ours}
    assert found == {(b"%d" % n, b"v%d" % n, n % 2) for n in range(500)}
    assert len(ours) == 500
    assert {row[-1][0].key for row in ours} == {"h"}


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_copies_a_topic(spark: Any, log: Log, tmp_path: Path, name: str) -> None:
    source, target = mixed(log), log.topic(3)
    given = options(log, source, startingOffsets="earliest")
    reading = spark.readStream.format(name).options(**given).load()
    copied = reading.select("key", "value", "partition", "headers").writeStream.format(name)
    copied = copied.options(**options(log, target), topic=target)
    copied = copied.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    assert copied.start().awaitTermination(120)
    contents = [
        sorted(
            ((row[3], row[0], row[1], row[-1]) for row in batch(spark, "kafka", log, topic)),
            key=repr,
        )
        for topic in (source, target)
    ]
    assert contents[0] == contents[1]
