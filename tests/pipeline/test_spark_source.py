"""The format "chronik" in a real Spark session: batch, stream, sink."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.kit import Log, numbered

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def reading(reader: Any, log: Log, **options: str) -> Any:
    options = {name.replace("__", "."): value for name, value in options.items()}
    return (
        reader.format("chronik")
        .option("kafka.bootstrap.servers", log.bootstrap)
        .options(**options)
        .load()
    )


def test_a_batch_read_has_the_schema_and_rows_of_the_kafka_source(spark: Any, log: Log) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 2_000), **{"compression.type": "lz4"})
    frame = reading(spark.read, log, subscribe=topic, includeHeaders="true", minPartitions="4")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = frame.select("partition", "offset", "key", "value").collect()
    found = sorted((r[0], r[1], bytes(r[2]), bytes(r[3])) for r in rows)
    assert found == log.read(topic, 2)


def test_offsets_columns_and_assign(spark: Any, log: Log) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 10), partition=0)
    log.send(topic, numbered(0, 10), partition=1)
    frame = reading(
        spark.read,
        log,
        assign=f'{{"{topic}": [1]}}',
        startingOffsets=f'{{"{topic}": {{"1": 3}}}}',
        endingOffsets=f'{{"{topic}": {{"1": 6}}}}',
        columns="partition,offset",
    )
    assert [tuple(row) for row in frame.collect()] == [(1, 3), (1, 4), (1, 5)]


def test_an_empty_topic_has_no_rows(spark: Any, log: Log) -> None:
    assert reading(spark.read, log, subscribe=log.topic(2)).collect() == []


def test_a_schema_prunes_as_columns_do_and_ranges_are_bounded(spark: Any, log: Log) -> None:
    topic = log.topic(1)
    log.send(topic, numbered(0, 100), **{"compression.type": "lz4"})
    reader = spark.read.schema("offset BIGINT, value BINARY")
    frame = reading(reader, log, subscribe=topic, maxRecordsPerPartition="30")
    assert frame.columns == ["offset", "value"]
    rows = [(row.offset, bytes(row.value)) for row in frame.collect()]
    assert sorted(rows) == [(row[1], row[3]) for row in log.read(topic, 1)]
    assert frame.rdd.getNumPartitions() == 4
    assert reading(spark.read, log, subscribe=topic, columns="partition").count() == 100


def test_a_start_later_than_every_record_is_an_error_unless_told(spark: Any, log: Log) -> None:
    topic = log.topic(1)
    log.send(topic, numbered(0, 3))
    late = {"subscribe": topic, "startingTimestamp": str(1 << 45)}
    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy"):
        reading(spark.read, log, **late).count()
    given = late | {"startingOffsetsByTimestampStrategy": "latest"}
    assert reading(spark.read, log, **given).count() == 0


def test_filters_on_place_and_time_plan_fewer_tasks(spark: Any, log: Log) -> None:
    topic = log.topic(3)
    for partition in range(3):
        log.send(topic, numbered(0, 30), partition=partition)
    frame = reading(spark.read, log, subscribe=topic)
    one = frame.where("partition = 1 AND offset >= 10 AND offset < 15")
    assert [row.offset for row in one.collect()] == [10, 11, 12, 13, 14]
    assert one.rdd.getNumPartitions() == 1
    middle = frame.agg({"timestamp": "max"}).collect()[0][0]
    later = frame.where(frame.timestamp >= middle)
    assert 0 < later.count() < 90
    assert later.count() == sum(row.timestamp >= middle for row in frame.collect())


def test_available_now_reads_everything_in_limited_batches(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 100))
    sizes: list[int] = []
    seen: list[tuple[int, int]] = []

    def take(batch: Any, _: int) -> None:
        rows = [(row.partition, row.offset) for row in batch.collect()]
        sizes.append(len(rows))
        seen.extend(rows)

    def run() -> Any:
        stream = reading(
            spark.readStream,
            log,
            subscribe=topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger="40",
            columns="partition,offset",
        )
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
        return query

    told = run().recentProgress[0]["sources"][0]
    lag = [sum(json.loads(told[name])[topic].values()) for name in ("endOffset", "latestOffset")]
    assert lag[0] <= 42
    assert lag[1] == 100, "progress shows how far the topic is, not only the batch"
    assert max(sizes) <= 42
    log.send(topic, numbered(100, 120))
    run()
    assert sorted(seen) == [(row[0], row[1]) for row in log.read(topic, 2)]


def test_a_trigger_waits_for_its_minimum_but_not_for_ever(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.topic(1)
    log.send(topic, numbered(0, 10))
    sizes: list[int] = []
    stream = reading(
        spark.readStream,
        log,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2s",
        columns="offset",
    )
    writer = stream.writeStream.foreachBatch(lambda batch, _: sizes.append(batch.count()))
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        assert sizes == [10]
        log.send(topic, numbered(10, 14))
        for _ in range(200):
            if sum(sizes) == 14:
                break
            query.awaitTermination(0.1)
        assert sizes == [10, 4]
    finally:
        query.stop()


def test_rows_written_by_the_sink_are_in_the_topic(spark: Any, log: Log) -> None:
    topic = log.topic(2)
    frame = spark.sql(
        "SELECT string(id) AS key, concat('v', id) AS value, 1 AS partition FROM range(100)"
    )
    writer = frame.write.format("chronik").option("kafka.bootstrap.servers", log.bootstrap)
    writer.option("topic", topic).mode("append").save()
    found = log.read(topic, 2)
    assert {(row[0], row[2], row[3]) for row in found} == {
        (1, b"%d" % n, b"v%d" % n) for n in range(100)
    }
    assert len(found) == 100
