"""Delta tables: the same promises as Iceberg's, kept in Delta's own transaction log."""

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.ingester import CONFLICT
from tests.pipeline.kit import Log, numbered, rows_of_arrow
from tests.pipeline.schemas import Schemas
from tests.pipeline.test_ingest import start_ingester

from chronik.pipeline.catalogs import WarehouseError
from chronik.pipeline.delta_table import DeltaTable, DeltaWarehouse, deltalake
from chronik.pipeline.files import FileWriter
from chronik.pipeline.ingest import Job, ingest_topic, open_table
from chronik.pipeline.letters import settle_bad
from chronik.pipeline.partitioning import parse
from chronik.pipeline.warehouse import OffsetConflict, table_name

pytest.importorskip("deltalake", reason="chronik[delta] is not installed")
pytestmark = pytest.mark.integration


def job(log: Log, warehouse: Path, records_max: int = 1_000_000, **more: Any) -> Job:
    return Job(
        log.bootstrap, DeltaWarehouse(warehouse), records_max=records_max, parallelism=2, **more
    )


def table_of(warehouse: Path, topic: str, suffix: str = "") -> DeltaTable:
    table = DeltaWarehouse(warehouse).existing(topic, suffix)
    assert table is not None
    return table


def rows(table: DeltaTable) -> list[Any]:
    """By deltalake, in the order of the log."""
    return rows_of_arrow(table.table.to_pyarrow_table())


def test_the_table_is_the_log_and_a_second_run_adds_nothing(log: Log, tmp_path: Path) -> None:
    topic = log.topic(3)
    log.send(topic, [*numbered(0, 3_000), (None, None), (b"", b"")])
    first = ingest_topic(job(log, tmp_path, records_max=1_000), topic)
    assert (first.rows, first.commits > 1) == (3_002, True)
    assert ingest_topic(job(log, tmp_path), topic).commits == 0
    table = table_of(tmp_path, topic)
    assert rows(table) == log.read(topic, 3)
    state = table.state()
    assert (sum(state.next.values()), state.first) == (3_002, {0: 0, 1: 0, 2: 0})
    assert state.committed_ms is not None


def test_duckdb_reads_the_same(log: Log, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    topic = log.topic(2)
    log.send(topic, numbered(0, 1_000))
    ingest_topic(job(log, tmp_path, records_max=300), topic)
    table = table_of(tmp_path, topic)
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    try:
        connection.execute("LOAD delta")
        source = f"delta_scan('{table.table.table_uri}')"
    except duckdb.Error:  # the extension is no part of the package, and tests fetch nothing
        connection.register("rows", table.table.to_pyarrow_dataset())
        source = "rows"
    query = f'SELECT count(*), sum("offset"), sum(octet_length(value)) FROM {source}'
    expected = log.read(topic, 2)
    lengths = sum(len(row[3] or b"") for row in expected)
    assert connection.execute(query).fetchone() == (
        len(expected),
        sum(row[1] for row in expected),
        lengths,
    )
    connection.close()


def test_files_are_pruned_by_their_offsets(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 100))
    ingest_topic(job(log, tmp_path, records_max=50), topic)
    found: Any = pa.table(table_of(tmp_path, topic).table.get_add_actions(flatten=True))
    bounds = [found[name].to_pylist() for name in ("min.offset", "max.offset")]
    ends = sorted(zip(*bounds, strict=True))
    assert ends == [(0, 24), (25, 49), (50, 74), (75, 99)]
    assert sum(found["num_records"].to_pylist()) == 100


def test_of_two_commits_from_one_offset_the_second_is_refused(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 10))
    slow = job(log, tmp_path)
    late: list[Any] = []

    def interrupted(work: Any, ranges: Any) -> Any:
        files = [work(one) for one in ranges]
        if not late:
            late.append(files)
            ingest_topic(job(log, tmp_path), topic)  # the other one is faster
        return files

    slow.tasks = interrupted
    with pytest.raises(OffsetConflict, match="ends at offset 10"):
        ingest_topic(slow, topic)
    table = table_of(tmp_path, topic)
    assert rows(table) == log.read(topic, 1)
    lost = {one.path for outcome in late[0] for one in outcome.files}
    assert not lost & set(table.files())
    assert {one.rsplit("/", 2)[0] for one in lost} == {
        one.rsplit("/", 2)[0] for one in table.files()
    }


def test_a_crash_between_write_and_commit_leaves_the_table_as_it_was(
    log: Log, tmp_path: Path
) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 10))
    crashing = job(log, tmp_path)

    def killed(work: Any, ranges: Any) -> Any:
        assert all(work(one).files for one in ranges)
        raise KeyboardInterrupt

    crashing.tasks = killed
    with pytest.raises(KeyboardInterrupt):
        ingest_topic(crashing, topic)
    table = table_of(tmp_path, topic)
    assert (table.files(), table.state().next) == ([], {})
    assert ingest_topic(job(log, tmp_path), topic).rows == 10
    assert rows(table_of(tmp_path, topic)) == log.read(topic, 1)


def test_a_commit_between_other_commits_is_repeated(log: Log, tmp_path: Path) -> None:
    """A version that moves no offset of ours (compaction) does not stop an ingester."""
    topic = log.topic()
    table = open_table(job(log, tmp_path), topic)
    stale = open_table(job(log, tmp_path), topic)
    table.commit([], {1: (0, 0)}, "another")
    stale.commit([], {0: (0, 10)}, "mine")
    assert table_of(tmp_path, topic).state().next == {0: 10, 1: 0}
    with pytest.raises(OffsetConflict):
        table.commit([], {0: (5, 20)}, "back")


def test_two_ingesters_at_once_double_nothing(log: Log, tmp_path: Path) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 5_000))
    both = [start_ingester(log, topic, tmp_path, 200, "delta") for _ in range(2)]
    codes = [process.wait(60) for process in both]
    assert set(codes) <= {0, CONFLICT}
    assert 0 in codes
    assert rows(table_of(tmp_path, topic)) == log.read(topic, 2)


def test_a_kill_at_any_moment_loses_and_doubles_nothing(log: Log, tmp_path: Path) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 20_000))
    chance = random.Random(7)
    for _ in range(2):
        process = start_ingester(log, topic, tmp_path, 400, "delta")
        try:
            process.wait(chance.uniform(0.1, 0.6))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert start_ingester(log, topic, tmp_path, 20_000, "delta").wait(60) == 0
    assert rows(table_of(tmp_path, topic)) == log.read(topic, 2)


def test_dead_letters_survive_a_crash_after_the_commit_that_names_them(
    log: Log, tmp_path: Path
) -> None:
    topic = log.topic()
    log.send(topic, [(None, b"bad"), (None, b'{"a": 1}')])
    crashed = job(log, tmp_path, mode="json")
    table = open_table(crashed, topic)
    table.commit([], {0: (0, 1)}, "one", [letter(table)])
    table_of(tmp_path, topic).table.optimize.compact()
    for _ in range(2):  # the second time there is nothing left to do
        settle_bad(crashed.warehouse, open_table(job(log, tmp_path, mode="json"), topic))
    letters = table_of(tmp_path, topic, "__dlq")
    assert letters.table.to_pyarrow_table().column("value").to_pylist() == [b"?"]
    assert ingest_topic(job(log, tmp_path, mode="json"), topic).rows == 1


def test_a_table_that_was_made_again_keeps_its_new_letters(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, [(None, b"bad")])
    for times in (1, 2):
        assert ingest_topic(job(log, tmp_path, mode="json"), topic).bad == 1
        assert len(rows(table_of(tmp_path, topic, "__dlq"))) == times
        shutil.rmtree(tmp_path / "delta" / table_name(topic))


def letter(table: Any) -> str:
    from chronik.pipeline import dlq_table

    writer = FileWriter(table.folders("x", f"{table.name}__dlq")[1], "bad")
    row = {"partition": 0, "offset": 0, "timestamp": 0, "value": b"?", "reason": "r"}
    writer.write(pa.RecordBatch.from_pylist([row], schema=dlq_table.ARROW))
    written = writer.close()
    assert written is not None
    return written.path


def test_the_offsets_outlive_checkpoints_compaction_vacuum_and_old_log_files(
    log: Log, tmp_path: Path
) -> None:
    topic = log.topic(2)
    log.send(topic, [*numbered(0, 200)])
    ingest_topic(job(log, tmp_path, records_max=40), topic)
    mine = table_of(tmp_path, topic)
    before = mine.state()
    mine.table.optimize.compact()
    mine.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    mine.table.create_checkpoint()
    newest = mine.table.version()
    for one in (tmp_path / "delta" / table_name(topic) / "_delta_log").glob("*.json"):
        if int(one.stem) < newest:
            one.unlink()
    after = table_of(tmp_path, topic)
    assert (after.state().first, after.state().next) == (before.first, before.next)
    assert len(after.files()) == 1
    log.send(topic, [*numbered(200, 300)])
    assert ingest_topic(job(log, tmp_path), topic).rows == 100
    assert rows(table_of(tmp_path, topic)) == log.read(topic, 2)


def test_columns_are_added_nested_ones_too(log: Log, tmp_path: Path, schemas: Schemas) -> None:
    fastavro = pytest.importorskip("fastavro")
    from tests.pipeline.test_avro import encoded, record

    def place(*members: str) -> Any:
        named = [{"name": name, "type": "int"} for name in members]
        inner = {"type": "record", "name": "Place", "fields": named}
        more = [("name", "string")] if len(members) > 1 else []
        return record(("place", inner), ("all", {"type": "array", "items": "Place"}), *more)

    assert fastavro
    old, new = place("x"), place("x", "y")
    schemas.add(1, old)
    schemas.add(2, new)
    topic = log.topic()
    given = job(log, tmp_path, mode="avro", registry=schemas.registry)
    log.send(topic, [(None, encoded(1, old, {"place": {"x": 1}, "all": [{"x": 2}]}))])
    ingest_topic(given, topic)
    both = {"x": 3, "y": 4}
    log.send(topic, [(None, encoded(2, new, {"place": both, "all": [both], "name": "n"}))])
    assert ingest_topic(given, topic).rows == 1
    found = table_of(tmp_path, topic).table.to_pyarrow_table().sort_by("_offset").to_pylist()
    assert [(row["place"], row["all"], row["name"]) for row in found] == [
        ({"x": 1, "y": None}, [{"x": 2, "y": None}], None),
        (both, [both], "n"),
    ]


def test_what_delta_cannot_do_is_said(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    table = open_table(job(log, tmp_path, mode="json"), topic)
    with pytest.raises(WarehouseError, match="no such type"):
        table.add_columns({"at": pa.time64("us")})
    with pytest.raises(WarehouseError, match="partition-by"):
        ingest_topic(job(log, tmp_path, partition_by=parse("day(timestamp)")), topic)


def test_a_table_that_deltalake_made_is_not_taken_over(log: Log, tmp_path: Path) -> None:
    from chronik.pipeline.plan import IngestError

    topic = log.topic()
    deltalake().write_deltalake(tmp_path / "delta" / table_name(topic), pa.table({"x": [1]}))
    with pytest.raises(IngestError, match="an alias gives the topic another table"):
        ingest_topic(job(log, tmp_path), topic)


@pytest.mark.spark
def test_the_proof_reads_delta_and_finds_what_is_lost(spark: Any, log: Log, tmp_path: Path) -> None:
    from chronik.pipeline.proof import prove

    topic = log.topic(2)
    log.send(topic, [(None, b'{"n": %d}' % n if n % 10 else b"broken") for n in range(100)])
    place = DeltaWarehouse(tmp_path)
    ingest_topic(job(log, tmp_path, mode="json"), topic)
    verdict = prove(log.bootstrap, topic, place, spark=spark)
    assert verdict.ok, verdict.text()
    assert verdict.total("table_rows") == 100
    table_of(tmp_path, topic).table.delete("n = 5")
    broken = prove(log.bootstrap, topic, place, spark=spark)
    assert (broken.ok, broken.total("lost")) == (False, 1)
