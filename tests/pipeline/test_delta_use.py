"""Delta tables in use: SQL, status and maintenance see them as they see Iceberg's."""

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.pipeline.kit import Log, numbered

from chronik.cli import main
from chronik.pipeline import sql_duckdb
from chronik.pipeline.delta_care import maintain
from chronik.pipeline.delta_table import DeltaTable, DeltaWarehouse
from chronik.pipeline.files import FileWriter
from chronik.pipeline.ingest import Job, ingest_topic, open_table
from chronik.pipeline.sql_text import BadQuery
from chronik.pipeline.status import status
from chronik.pipeline.system_tables import Places, system_tables
from chronik.pipeline.warehouse import OffsetConflict, Warehouse, table_name

pytest.importorskip("deltalake", reason="chronik[delta] is not installed")
pytestmark = pytest.mark.integration
NOW = datetime.timedelta(0)


def job(log: Log, warehouse: Path, mode: str = "json") -> Job:
    return Job(log.bootstrap, DeltaWarehouse(warehouse), mode, records_max=20, parallelism=2)


def events(first: int, last: int) -> list[tuple[bytes, bytes]]:
    """One in ten is bad."""
    return [(b"k", b'{"n": %d}' % n if n % 10 else b"bad") for n in range(first, last)]


def answers(log: Log, warehouse: Path, text: str) -> list[tuple[Any, ...]]:
    found = sql_duckdb.query(log.bootstrap, warehouse, text)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.fixture
def ingested(log: Log, tmp_path: Path) -> str:
    """60 records in three commits, and 30 that are in the log only."""
    topic = log.topic()
    log.send(topic, events(0, 60))
    ingest_topic(job(log, tmp_path), topic)
    log.send(topic, events(60, 90))
    return topic


def table_of(warehouse: Path, topic: str) -> DeltaTable:
    table = DeltaWarehouse(warehouse).existing(topic)
    assert table is not None
    return table


def test_rows_letters_and_earlier_versions(log: Log, tmp_path: Path, ingested: str) -> None:
    name = table_name(ingested)
    assert answers(log, tmp_path, f"SELECT count(*), max(n) FROM {name}") == [(81, 89)]
    assert answers(log, tmp_path, f"SELECT count(*) FROM {name}__dlq") == [(9,)]
    rows = system_tables(["snapshots"], Places(None, tmp_path))["snapshots"].to_pylist()
    mine = [row for row in rows if row["table"] == name and row["added_rows"]]
    assert [(row["rows"], row["next_offsets"]) for row in mine] == [
        (18, '{"0": 20}'),
        (36, '{"0": 40}'),
        (54, '{"0": 60}'),
    ]
    old = mine[0]["snapshot_id"]
    assert answers(log, tmp_path, f"SELECT count(*) FROM {name} VERSION AS OF {old}") == [(18,)]
    then = mine[1]["committed"].isoformat()
    when = f"SELECT count(*) FROM {name} TIMESTAMP AS OF '{then}'"
    assert answers(log, tmp_path, when) in ([(36,)], [(54,)])  # the same millisecond
    for wrong in ("VERSION AS OF 99", "TIMESTAMP AS OF '2000-01-01'"):
        with pytest.raises(BadQuery, match=r"chronik\.snapshots"):
            answers(log, tmp_path, f"SELECT * FROM {name} {wrong}")


def test_letters_that_are_not_settled_are_in_the_answer(log: Log, tmp_path: Path) -> None:
    from tests.pipeline.test_delta import letter

    topic = log.topic()
    log.send(topic, [(None, b"bad")])
    table = open_table(job(log, tmp_path), topic)
    table.commit([], {0: (0, 1)}, "one", [letter(table)])
    query = f"SELECT offset, value FROM {table_name(topic)}__dlq"
    assert answers(log, tmp_path, query) == [(0, b"?")]


def test_status_shows_both_formats(log: Log, tmp_path: Path, ingested: str) -> None:
    other = log.topic()
    log.send(other, numbered(0, 3))
    ingest_topic(Job(log.bootstrap, Warehouse(tmp_path)), other)
    found = {one.topic: one for one in status(log.bootstrap, tmp_path)}
    delta = found[ingested]
    assert (delta.format, found[other].format) == ("delta", "iceberg")
    assert (delta.rows, delta.bad, delta.commits, delta.lag) == (54, 6, 3, 30)
    assert (delta.files > 0, delta.bytes > 0, delta.committed_ms is not None) == (True, True, True)
    words = ["pipeline", "status", "-b", log.bootstrap, "-w", str(tmp_path)]
    told = CliRunner().invoke(main, words)
    assert any(
        line.split()[:3] == [table_name(ingested), "delta", "54"]
        for line in told.output.splitlines()
    )


def test_maintenance_leaves_rows_and_offsets_as_they_are(
    log: Log, tmp_path: Path, ingested: str
) -> None:
    table = table_of(tmp_path, ingested)
    orphan = FileWriter(table.folders("killed", "")[0], "00000")
    orphan.write(pa.record_batch({"a": [1]}))
    assert orphan.close() is not None
    before = table.state()
    told = CliRunner().invoke(main, ["pipeline", "maintain", "-w", str(tmp_path)])
    joined = told.output.splitlines()[1].split()
    assert (joined[0], int(joined[1]) > 2, joined[2:]) == (table.name, True, ["0", "0"])
    done = maintain(DeltaWarehouse(tmp_path), table.name, snapshot_age=NOW, orphan_age=NOW)
    assert done.deleted > 1
    after = table_of(tmp_path, ingested)
    assert (after.state().next, after.state().first) == (before.next, before.first)
    (whole,) = after.files()
    left = list((tmp_path / "delta" / table.name).rglob("*.parquet"))
    assert [f"file://{one}" for one in left if one.parent.name != "_delta_log"] == [whole]
    assert ingest_topic(job(log, tmp_path), ingested).rows == 27
    assert answers(log, tmp_path, f"SELECT count(*) FROM {after.name}") == [(81,)]
    assert answers(log, tmp_path, f"SELECT count(*) FROM {after.name}__dlq") == [(9,)]


def test_a_table_may_rest_after_bad_records_until_their_log_file_is_gone(
    log: Log, tmp_path: Path, ingested: str
) -> None:
    maintain(DeltaWarehouse(tmp_path), table_name(ingested))
    newest = table_of(tmp_path, ingested).table.version()
    for one in (tmp_path / "delta" / table_name(ingested) / "_delta_log").glob("*.json"):
        if int(one.stem) < newest:
            one.unlink()
    assert ingest_topic(job(log, tmp_path), ingested).rows == 27


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_a_commit_never_hides_the_letters_of_another(
    log: Log, tmp_path: Path, table_format: str
) -> None:
    """One died between its commit and its letters; the other, who did not see it, must end."""
    topic = log.topic(2)
    place: Any = Warehouse(tmp_path) if table_format == "iceberg" else DeltaWarehouse(tmp_path)
    one, two = (open_table(Job(log.bootstrap, place, "json"), topic) for _ in range(2))
    one.commit([], {0: (0, 5)}, "died", ["file:///letters"])
    with pytest.raises(OffsetConflict, match="bad records in between"):
        two.commit([], {1: (0, 5)}, "other")


def test_what_another_engine_made_of_a_table_is_refused_by_name(
    log: Log, tmp_path: Path, ingested: str
) -> None:
    table = table_of(tmp_path, ingested)
    folder = tmp_path / "delta" / table.name / "_delta_log"
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    (folder / f"{table.table.version() + 1:020d}.json").write_text(json.dumps(action))
    with pytest.raises(BadQuery, match="deletionVectors"):
        answers(log, tmp_path, f"SELECT * FROM {table.name}")
