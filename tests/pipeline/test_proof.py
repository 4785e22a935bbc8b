"""The pipeline end to end on Spark, and the audit that finds each way it could be wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.kit import Log, numbered

from chronik.pipeline.files import FileWriter
from chronik.pipeline.ingest import ingest_once
from chronik.pipeline.proof import Verdict, prove
from chronik.pipeline.sql import query
from chronik.pipeline.warehouse import Warehouse, add_files, data_files, state_of

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture
def ingested(spark: Any, log: Log, tmp_path: Path) -> tuple[str, Any]:
    """A topic and its table, made of several files."""
    topic = log.topic(2)
    log.send(topic, numbered(0, 300))
    ingest_once(log.bootstrap, [topic], tmp_path, spark=spark, records_per_commit=100)
    return topic, Warehouse(tmp_path).load(topic.replace("-", "_"))


@pytest.fixture
def judge(spark: Any, log: Log, tmp_path: Path) -> Callable[[str], Verdict]:
    return lambda topic: prove(log.bootstrap, topic, tmp_path, spark=spark)


def test_a_table_that_is_the_log_is_proven(
    ingested: tuple[str, Any], judge: Callable[[str], Verdict]
) -> None:
    verdict = judge(ingested[0])
    assert verdict.ok
    assert verdict.total("log_rows") == verdict.total("table_rows") == 300
    assert verdict.text().startswith("PROVEN")


def test_a_removed_file_is_found(
    ingested: tuple[str, Any], judge: Callable[[str], Verdict]
) -> None:
    topic, table = ingested
    victim = next(task.file for task in table.scan().plan_files())
    with (
        table.transaction() as transaction,
        transaction.update_snapshot().overwrite() as overwrite,
    ):
        overwrite.delete_data_file(victim)
    verdict = judge(topic)
    assert not verdict.ok
    assert (verdict.total("lost"), verdict.total("doubled")) == (victim.record_count, 0)


def test_a_batch_that_was_committed_twice_is_found(
    ingested: tuple[str, Any], judge: Callable[[str], Verdict]
) -> None:
    topic, table = ingested
    victim = next(iter(data_files(table)))
    add_files(table, [victim], lambda _: {})
    verdict = judge(topic)
    assert not verdict.ok
    assert verdict.total("doubled") == pq.read_metadata(victim.removeprefix("file://")).num_rows
    assert (verdict.total("lost"), verdict.total("altered")) == (0, 0)


def test_a_skipped_offset_range_is_found(
    spark: Any, log: Log, tmp_path: Path, judge: Callable[[str], Verdict]
) -> None:
    from chronik.pipeline.ingest import Job, open_table

    topic = log.topic()
    log.send(topic, numbered(0, 100))
    table = open_table(Job(log.bootstrap, Warehouse(tmp_path)), topic)
    table.commit([], {0: (0, 40)}, "claims offsets whose records it does not have")
    ingest_once(log.bootstrap, [topic], tmp_path, spark=spark)
    verdict = judge(topic)
    assert verdict.total("lost") == 40
    assert verdict.partitions[0].examples == ("partition 0: 40 lost between offsets 0 and 39",)


def test_what_retention_deleted_is_no_difference(
    log: Log, ingested: tuple[str, Any], judge: Callable[[str], Verdict]
) -> None:
    topic, _ = ingested
    log.delete_before(topic, 0, 50)
    verdict = judge(topic)
    assert verdict.ok
    assert verdict.partitions[0].first == 50
    assert verdict.total("log_rows") == 250


def test_an_altered_row_is_found(
    ingested: tuple[str, Any], judge: Callable[[str], Verdict]
) -> None:
    topic, table = ingested
    path = next(iter(data_files(table))).removeprefix("file://")
    rows = pq.read_table(path).to_pylist()
    rows[3]["value"] += b"!"
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(path)), path)
    verdict = judge(topic)
    assert (verdict.total("altered"), verdict.total("lost")) == (1, 0)
    assert f"between offsets {rows[3]['offset']} and" in " ".join(
        line for one in verdict.partitions for line in one.examples
    )


def test_an_invented_row_and_a_missing_ack_are_found(
    spark: Any, log: Log, tmp_path: Path, ingested: tuple[str, Any]
) -> None:
    topic, table = ingested
    path = next(iter(data_files(table))).removeprefix("file://")
    row = pq.read_table(path).slice(0, 1).to_pylist()[0] | {"offset": 77_777}
    writer = FileWriter(f"{table.location()}/data/x", "invented")
    writer.write(pa.RecordBatch.from_pylist([row], schema=pq.read_schema(path)))
    written = writer.close()
    assert written is not None
    add_files(table, [written.path], lambda _: {})
    ledger = pa.table(
        {
            "kind": ["send"] * 4,
            "topic": [topic, topic, topic, "another"],
            "partition": [0, 0, 1, 0],
            "offset": [0, 5_000, 1, 9_000],
            "outcome": ["ok", "ok", "ok", "ok"],
        }
    )
    target = tmp_path / "ledger.parquet"
    pq.write_table(ledger, target)
    verdict = prove(log.bootstrap, topic, tmp_path, target, spark=spark)
    assert verdict.total("invented") == 1
    assert (verdict.acked, verdict.acked_missing) == (3, 1)
    assert verdict.acked_examples == ("partition 0 offset 5000",)


def test_json_bad_records_evolution_and_sql_over_table_and_log(
    spark: Any, log: Log, tmp_path: Path, judge: Callable[[str], Verdict]
) -> None:
    topic = log.topic(1, name="shop.events")

    def send(*values: Any) -> None:
        log.send(
            topic,
            [(b"k", one if isinstance(one, bytes) else json.dumps(one).encode()) for one in values],
        )

    def ingest() -> Any:
        return ingest_once(log.bootstrap, [topic], tmp_path, spark=spark, mode="json").topics[0]

    send({"id": 1, "who": "a"}, b"broken", {"id": 2, "who": "b"})
    first = ingest()
    assert (first.rows, first.bad, first.table) == (2, 1, "shop_events")
    send({"id": 3, "price": 2.5, "at": {"x": 1e10}, "odd`": [1.50]}, {"id": "three"})
    second = ingest()
    assert (second.rows, second.bad) == (1, 1)

    send({"id": 4, "price": 4.5}, b"broken again")  # only in the log

    answer = query(
        spark,
        log.bootstrap,
        tmp_path,
        "SELECT id, who, price FROM shop_events ORDER BY id",
    )
    assert [tuple(row) for row in answer.collect()] == [
        (1, "a", None),
        (2, "b", None),
        (3, None, 2.5),
        (4, None, 4.5),
    ]
    letters = query(
        spark, None, tmp_path, "SELECT offset, string(value) FROM shop_events__dlq ORDER BY offset"
    )
    assert [tuple(row) for row in letters.collect()] == [(1, "broken"), (4, '{"id": "three"}')]
    verdict = judge(topic)
    assert verdict.ok
    assert verdict.total("table_rows") == 5
    assert verdict.total("behind") == 2
    table = Warehouse(tmp_path).load("shop_events")
    assert table is not None
    assert state_of(table).next == {0: 5}
