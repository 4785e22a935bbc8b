"""Partitioned tables: Iceberg's transforms, one commit over many partitions, compaction in each."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform
from pyiceberg.types import BinaryType, LongType, TimestamptzType
from tests.pipeline.kit import QUIET, Log, numbered, rows_of

from chronik.pipeline.files import TableWriter
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.maintenance import compact
from chronik.pipeline.partitioning import BadPartitioning, parse
from chronik.pipeline.plan import IngestError
from chronik.pipeline.warehouse import Warehouse, state_of

NOON = 1_700_000_000_000
DAY_MS = 86_400_000


def test_values_are_those_of_icebergs_own_transforms() -> None:
    times: list[Any] = [0, -1, NOON * 1_000, NOON * 1_000 + 3_599_999_999, None]
    column: Any = pa.array(times, pa.timestamp("us", tz="UTC"))
    transforms: dict[str, Any] = {"day": DayTransform(), "hour": HourTransform()}
    for text, transform in transforms.items():
        expected = [transform.transform(TimestamptzType())(one) for one in times]
        assert parse(f"{text}(timestamp)")[0].values(column).to_pylist() == expected
    keys = [b"a", b"key17", b"\x00" * 9, b"a"]
    bucket: Any = BucketTransform(16)
    expected = [bucket.transform(BinaryType())(one) for one in keys]
    assert parse("bucket(16,key)")[0].values(pa.array(keys)).to_pylist() == expected
    numbers = [1, -5, 1 << 40]
    expected = [bucket.transform(LongType())(one) for one in numbers]
    assert parse("bucket(16, offset)")[0].values(pa.array(numbers)).to_pylist() == expected
    assert parse("bucket(4,key)")[0].values(pa.array([None, b"a"])).to_pylist()[0] is None


@pytest.mark.parametrize(
    "text", ["day", "day(key)", "bucket(key)", "bucket(0,key)", "month(timestamp)", "hour(value)"]
)
def test_what_is_no_partitioning_is_refused(text: str) -> None:
    with pytest.raises(BadPartitioning):
        parse(text)


def send_days(log: Log, topic: str, first: int, last: int) -> None:
    """One record in each of five days, in turns."""
    producer = Producer(QUIET | {"bootstrap.servers": log.bootstrap})
    for n in range(first, last):
        producer.produce(topic, b"v%d" % n, b"k%d" % n, timestamp=NOON + n % 5 * DAY_MS)
    assert producer.flush(30) == 0


def job(log: Log, place: Path, by: str, mode: str = "raw") -> Job:
    return Job(log.bootstrap, Warehouse(place), mode, records_max=100, partition_by=parse(by))


@pytest.mark.integration
@pytest.mark.parametrize(("by", "files"), [("day(timestamp)", 10), ("bucket(3,key)", 6)])
def test_the_table_is_the_log_in_any_partitioning(
    log: Log, tmp_path: Path, by: str, files: int
) -> None:
    topic = log.topic()
    send_days(log, topic, 0, 200)
    ingest_topic(job(log, tmp_path, by), topic)
    table = Warehouse(tmp_path).of_topic(topic)
    assert table is not None
    assert len(table.snapshots()) == 2
    assert len(list(table.scan().plan_files())) == files
    assert rows_of(table) == log.read(topic, 1)
    assert compact(table) == files
    assert len(list(table.scan().plan_files())) == files // 2
    assert rows_of(table) == log.read(topic, 1)
    send_days(log, topic, 200, 210)
    # Without the option the table's own partitioning is used.
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path)), topic)
    table.refresh()
    assert rows_of(table) == log.read(topic, 1)
    assert state_of(table).next == {0: 210}
    with pytest.raises(IngestError, match="partition-by"):
        ingest_topic(job(log, tmp_path, "hour(timestamp)"), topic)


@pytest.mark.integration
def test_a_query_for_a_day_reads_the_files_of_that_day(log: Log, tmp_path: Path) -> None:
    topic = log.topic(1, name="shop.partitioned-events")
    send_days(log, topic, 0, 100)
    wanted = job(log, tmp_path, "day(timestamp); bucket(2,key)", "json")
    wanted.aliases = {topic: "events_by_day"}
    result = ingest_topic(wanted, topic)
    assert (result.table, result.bad) == ("events_by_day", 100)
    topic = log.topic()
    send_days(log, topic, 0, 100)
    ingest_topic(job(log, tmp_path, "day(timestamp)"), topic)
    table = Warehouse(tmp_path).of_topic(topic)
    assert table is not None
    after = datetime.datetime.fromtimestamp((NOON + 4 * DAY_MS) / 1_000, datetime.UTC)
    found = table.scan(row_filter=f"timestamp >= '{after.isoformat()}'")
    assert len(list(found.plan_files())) == 1
    assert found.to_arrow().num_rows == 20


def test_a_backfill_over_many_partitions_keeps_few_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronik.pipeline.files.OPEN_FILES_MAX", 2)
    writer = TableWriter(f"file://{tmp_path}", "x", parse("bucket(1000,offset)"))
    batch = pa.record_batch({"offset": pa.array(range(10))})
    writer.write(batch, batch)
    assert len(writer._open) == 2
    written = writer.close()
    assert sum(one.rows for one in written) == 10
    assert len({one.partition for one in written}) == 10


@pytest.mark.integration
def test_a_table_of_another_topic_is_not_taken(log: Log, tmp_path: Path) -> None:
    first = log.topic(1, name="a.same-name")
    second = log.topic(1, name="a-same.name")
    log.send(first, numbered(0, 5))
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path)), first)
    with pytest.raises(IngestError, match="alias"):
        ingest_topic(Job(log.bootstrap, Warehouse(tmp_path)), second)
