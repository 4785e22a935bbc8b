"""SQL over table and log, by both engines: the same rows, the newest ones too, and earlier ones."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.kit import Ask, Log, Rows, numbered, rows_in

from chronik.pipeline import sql, sql_duckdb
from chronik.pipeline.delta_table import DeltaWarehouse
from chronik.pipeline.ingest import Job, ingest_once, ingest_topic
from chronik.pipeline.sql_plan import plan
from chronik.pipeline.sql_text import BadQuery, parse_as_of
from chronik.pipeline.warehouse import Warehouse, table_name

pytestmark = pytest.mark.integration


def ingest(
    log: Log, topic: str, place: Path, records: int = 5_000_000, table_format: str = "iceberg"
) -> None:
    tables: Any = Warehouse(place) if table_format == "iceberg" else DeltaWarehouse(place)
    ingest_topic(Job(log.bootstrap, tables, records_max=records), topic)


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_table_and_log_are_one_and_no_record_is_twice(
    ask: Ask, log: Log, tmp_path: Path, table_format: str
) -> None:
    if table_format == "delta":
        pytest.importorskip("deltalake", reason="chronik[delta] is not installed")
    topic = log.topic(2)
    log.send(topic, numbered(0, 60))
    ingest(log, topic, tmp_path, 20, table_format)
    log.send(topic, numbered(60, 100))
    found = ask(f"SELECT partition, offset, key, value FROM {table_name(topic)} ORDER BY 1, 2")
    assert [(p, o, bytes(k), bytes(v)) for p, o, k, v in found] == log.read(topic, 2)


def test_a_topic_without_a_table_is_read_from_the_log(ask: Ask, log: Log, tmp_path: Path) -> None:
    topic = log.topic(2, name=f"fresh.{log.topic()}")
    log.send(topic, numbered(0, 30))
    name = table_name(topic)
    assert ask(f"SELECT count(*), max(offset) > 0 FROM {name}") == [(30, True)]
    assert list(tmp_path.iterdir()) == []  # a question makes no folder


def test_the_json_of_a_topic_without_a_table_has_columns(ask: Ask, log: Log) -> None:
    topic = log.topic()
    values = [{"id": 1, "price": 2.5, "ok": True}, {"id": 2, "price": 3, "odd": [1]}, "no object"]
    log.send(topic, [(b"k", json.dumps(one).encode()) for one in values])
    text = f"SELECT _offset, id, price, ok, odd FROM {table_name(topic)} ORDER BY 1"
    assert ask(text, mode="json") == [(0, 1, 2.5, True, None), (1, 2, 3.0, None, "[1]")]


def test_an_earlier_state_is_the_table_alone(ask: Ask, log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    name = table_name(topic)
    for first in (0, 10, 20):
        log.send(topic, numbered(first, first + 10))
        if first < 20:
            ingest(log, topic, tmp_path)
    table = Warehouse(tmp_path).load(name)
    assert table is not None
    old, new = table.snapshots()
    count = f"SELECT count(*) FROM {name}"
    assert ask(count) == [(30,)]
    assert ask(f"{count} VERSION AS OF {old.snapshot_id}") == [(10,)]
    assert ask(count, as_of=parse_as_of(str(new.snapshot_id))) == [(20,)]
    then = datetime.fromtimestamp(old.timestamp_ms / 1000, UTC).isoformat()
    if old.timestamp_ms != new.timestamp_ms:
        assert ask(f"{count} TIMESTAMP AS OF '{then}'") == [(10,)]
    both = f"SELECT count(*) FROM (SELECT offset FROM {name} EXCEPT SELECT offset FROM {name}"
    assert ask(f"{both} VERSION AS OF {old.snapshot_id})") == [(20,)]


def test_a_state_that_is_not_there_is_refused(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 3))
    ingest(log, topic, tmp_path)
    name = table_name(topic)
    for when in ("VERSION AS OF 5", "TIMESTAMP AS OF '2000-01-01'"):
        with pytest.raises(BadQuery, match=r"chronik\.snapshots"):
            plan(f"SELECT * FROM {name} {when}", log.bootstrap, tmp_path)


def test_deleted_records_of_the_log_do_not_change_the_tables_part(
    ask: Ask, log: Log, tmp_path: Path
) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 20))
    ingest(log, topic, tmp_path)
    log.send(topic, numbered(20, 25))
    log.delete_before(topic, 0, 20)
    assert ask(f"SELECT count(*) FROM {table_name(topic)}") == [(25,)]


@pytest.mark.spark
def test_both_engines_agree_which_records_of_the_log_are_rows(
    spark: Any, log: Log, tmp_path: Path
) -> None:
    topic = log.topic()
    name = table_name(topic)
    first = {"id": 1, "price": 1.5, "ok": True, "name": "a"}
    log.send(topic, [(b"k", json.dumps(first).encode())])
    ingest_once(log.bootstrap, [topic], tmp_path, spark=spark, mode="json")
    values: list[bytes | None] = [
        b'{"id": 2, "name": {"x": [1, "\xc3\xa4"]}, "new": 1}',
        b'{"id": 3, "price": 2, "ok": false, "name": 5}',
        b' {"name": null}\n',
        None,
        b"{}",
        *[b"oops", b"5", b"[1]", b"", b'{"id": 1', b'{"id": 1} x', b"null", b"\xff"],
        *[b'{"id": "text"}', b'{"id": 1.5}', b'{"ok": 1}', b'{"price": "x"}', b'{"id": true}'],
        b'{"id": 9223372036854775808}',
    ]
    log.send(topic, [(b"k", value) for value in values])

    def asked(text: str) -> tuple[Rows, Rows]:
        by_spark = sql.query(spark, log.bootstrap, tmp_path, text).collect()
        by_duckdb = rows_in(sql_duckdb.query(log.bootstrap, tmp_path, text))
        return [tuple(row) for row in by_spark], by_duckdb

    good, same = asked(f"SELECT _offset, id, price, ok, name FROM {name} ORDER BY 1")
    assert good == same
    assert [row[0] for row in good] == [0, 1, 2, 3, 4, 5]
    bad, same = asked(f"SELECT offset, reason FROM {name}__dlq ORDER BY 1")
    assert bad == same
    assert [row[0] for row in bad] == list(range(6, 6 + 14))


@pytest.mark.spark
def test_views_are_of_the_moment_they_were_made(spark: Any, log: Log, tmp_path: Path) -> None:
    topic = log.topic(2)
    name = table_name(topic)

    def count() -> int:
        return int(spark.sql(f"SELECT count(*) FROM {name}").collect()[0][0])

    log.send(topic, numbered(0, 10))
    ingest(log, topic, tmp_path)
    assert sql.register_views(spark, log.bootstrap, tmp_path) == [name]
    log.send(topic, numbered(10, 25))
    assert count() == 10
    sql.register_views(spark, log.bootstrap, tmp_path)
    assert count() == 25


SECONDS_MAX = 1.0


def test_a_record_is_in_the_answer_within_a_second_of_its_ack(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 1_000))
    ingest(log, topic, tmp_path)
    took = []
    for number in range(1_000, 1_003):
        log.send(topic, numbered(number, number + 1))
        acked = time.perf_counter()
        text = f"SELECT max(offset) FROM {table_name(topic)}"
        assert rows_in(sql_duckdb.query(log.bootstrap, tmp_path, text)) == [(number,)]
        took.append(time.perf_counter() - acked)
    assert min(took) < SECONDS_MAX
