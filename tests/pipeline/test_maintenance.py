"""Compaction, expiry and the deletion of orphans leave rows and offsets as they are."""

import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.kit import Log, numbered, rows_of

from chronik.pipeline.files import FileWriter
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.maintenance import compact, delete_orphans, expire, maintain
from chronik.pipeline.status import status
from chronik.pipeline.warehouse import Warehouse, data_files, state_of

pytestmark = pytest.mark.integration
LATER = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=30)


@pytest.fixture
def ingested(log: Log, tmp_path: Path) -> tuple[Job, str, Any]:
    """A table of many small files."""
    topic = log.topic(2)
    log.send(topic, numbered(0, 300))
    job = Job(log.bootstrap, Warehouse(tmp_path), records_max=60)
    ingest_topic(job, topic)
    return job, topic, Warehouse(tmp_path).load(topic.replace("-", "_"))


def test_compaction_keeps_every_row_and_the_offsets(
    log: Log, ingested: tuple[Job, str, Any]
) -> None:
    job, topic, table = ingested
    before = state_of(table)
    assert compact(table) == 10
    assert len(data_files(table)) == 1
    assert rows_of(table) == log.read(topic, 2)
    assert state_of(table).next == before.next
    log.send(topic, numbered(300, 350))
    ingest_topic(job, topic)
    table.refresh()
    assert rows_of(table) == log.read(topic, 2)


def test_after_expiry_of_everything_old_ingest_still_knows_where_it_is(
    log: Log, ingested: tuple[Job, str, Any]
) -> None:
    job, topic, table = ingested
    compact(table)
    assert expire(table, LATER) == 5
    log.send(topic, numbered(300, 350))
    assert ingest_topic(job, topic).rows == 50
    table.refresh()
    assert rows_of(table) == log.read(topic, 2)


def test_only_old_files_without_a_table_are_deleted(
    log: Log, ingested: tuple[Job, str, Any]
) -> None:
    _, topic, table = ingested
    import pyarrow as pa

    orphan = FileWriter(f"{table.location()}/data/killed", "00000")
    orphan.write(pa.record_batch({"a": [1]}))
    assert orphan.close() is not None
    now = datetime.datetime.now(datetime.UTC)
    assert delete_orphans([table], now - datetime.timedelta(hours=1)) == 0
    assert delete_orphans([table], LATER) == 1
    assert rows_of(table) == log.read(topic, 2)


def test_all_of_it_as_one_job(log: Log, tmp_path: Path, ingested: tuple[Job, str, Any]) -> None:
    _, topic, table = ingested
    done = maintain(Warehouse(tmp_path), table.name()[-1], LATER)
    assert (done.compacted, done.expired, done.deleted) == (10, 5, 10)
    table.refresh()
    assert rows_of(table) == log.read(topic, 2)


def test_a_compaction_that_ingest_overtakes_gives_way(
    log: Log, ingested: tuple[Job, str, Any]
) -> None:
    from chronik.pipeline.maintenance import _replace

    job, topic, stale = ingested
    files = [task.file for task in stale.scan().plan_files()]
    log.send(topic, numbered(300, 350))
    ingest_topic(job, topic)
    assert not _replace(stale, files)
    assert rows_of(stale) == log.read(topic, 2)


def test_status_shows_the_lag(log: Log, tmp_path: Path, ingested: tuple[Job, str, Any]) -> None:
    _, topic, _ = ingested
    log.send(topic, numbered(0, 7), partition=1)
    (found,) = status(log.bootstrap, tmp_path)
    assert [one.lag for one in found.partitions] == [0, 7]
    assert (found.rows, found.files, found.bad) == (300, 10, 0)
    (unknown,) = status(None, tmp_path)
    assert unknown.partitions[0].lag is None
