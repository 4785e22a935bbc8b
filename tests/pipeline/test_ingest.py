"""Exactly once: whatever is killed or races, the table is the log."""

import datetime
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.ingester import CONFLICT
from tests.pipeline.kit import Log, numbered, rows_of

from chronik.pipeline.fetch import DataLoss, OffsetRange
from chronik.pipeline.ingest import Job, ingest_forever, ingest_topic, open_table
from chronik.pipeline.letters import settle_bad
from chronik.pipeline.plan import IngestError, plan
from chronik.pipeline.warehouse import (
    NEXT,
    OffsetConflict,
    State,
    Warehouse,
    check_ranges,
    data_files,
    properties_of,
    state_of,
)

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
KILLS = 2
KILLS_SOAK = 30


def job(log: Log, warehouse: Path, records_max: int = 1_000_000) -> Job:
    """Tasks run here; what is tested is everything but Spark."""
    return Job(log.bootstrap, Warehouse(warehouse), records_max=records_max, parallelism=2)


def start_ingester(
    log: Log, topic: str, warehouse: Path, records: int, *more: str
) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.pipeline.ingester"]
    command += [log.bootstrap, topic, str(warehouse), str(records), *more]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as told:
        assert told.readline() == "ready\n"
    return process


def table_of(warehouse: Path, topic: str) -> Any:
    table = Warehouse(warehouse).load(topic.replace("-", "_"))
    assert table is not None
    return table


def test_the_table_is_the_log_and_a_second_run_adds_nothing(log: Log, tmp_path: Path) -> None:
    topic = log.topic(3)
    log.send(topic, [*numbered(0, 3_000), (None, None), (b"", b"")])
    first = ingest_topic(job(log, tmp_path), topic)
    assert (first.rows, first.commits) == (3_002, 1)
    assert ingest_topic(job(log, tmp_path), topic).commits == 0
    assert rows_of(table_of(tmp_path, topic)) == log.read(topic, 3)


def test_runs_go_on_where_the_table_ends(log: Log, tmp_path: Path) -> None:
    topic = log.topic(2)
    for part in range(4):
        log.send(topic, numbered(part * 100, part * 100 + 100))
        ingest_topic(job(log, tmp_path, records_max=30), topic)
    table = table_of(tmp_path, topic)
    assert rows_of(table) == log.read(topic, 2)
    assert sum(state_of(table).next.values()) == 400


def test_rounds_begin_no_sooner_than_the_interval(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 10))
    rounds = iter([False, False, False, True])
    begun = time.perf_counter()
    ingest_forever(job(log, tmp_path), [topic], 0.2, lambda: next(rounds))
    assert time.perf_counter() - begun >= 3 * 0.2
    assert rows_of(table_of(tmp_path, topic)) == log.read(topic, 1)


def test_every_commit_says_which_offsets_it_holds(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 100))
    result = ingest_topic(job(log, tmp_path, records_max=40), topic)
    assert (result.commits, result.next_offsets) == (3, {0: 100})
    told = [properties_of(one) for one in table_of(tmp_path, topic).snapshots()]
    assert [json.loads(one[NEXT]) for one in told] == [{"0": 40}, {"0": 80}, {"0": 100}]
    assert [json.loads(one["chronik.ranges"])["0"] for one in told] == [
        [0, 40],
        [40, 80],
        [80, 100],
    ]


def test_a_kill_at_any_point_loses_and_doubles_nothing(
    log: Log, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 20_000))
    chance = random.Random(7)
    soak = request.config.getoption("--soak", default=False)
    for _ in range(KILLS_SOAK if soak else KILLS):
        process = start_ingester(log, topic, tmp_path, 400)
        try:
            process.wait(chance.uniform(0.02, 0.6))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    killed = table_of(tmp_path, topic)
    assert len(rows_of(killed)) == sum(state_of(killed).next.values())
    assert start_ingester(log, topic, tmp_path, 20_000).wait(60) == 0
    assert rows_of(table_of(tmp_path, topic)) == log.read(topic, 2)


def test_two_ingesters_at_once_double_nothing(log: Log, tmp_path: Path) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 5_000))
    open_table(job(log, tmp_path), topic)
    both = [start_ingester(log, topic, tmp_path, 200) for _ in range(2)]
    codes = [process.wait(60) for process in both]
    assert set(codes) <= {0, CONFLICT}
    assert 0 in codes
    assert rows_of(table_of(tmp_path, topic)) == log.read(topic, 2)


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
    assert rows_of(table) == log.read(topic, 1)
    assert not {one.path for outcome in late[0] for one in outcome.files} & set(data_files(table))


def test_a_commit_between_other_commits_is_repeated(log: Log, tmp_path: Path) -> None:
    """A snapshot that moves no offset (maintenance) does not stop an ingester."""
    topic = log.topic()
    log.send(topic, numbered(0, 10))
    table = open_table(job(log, tmp_path), topic)
    stale = open_table(job(log, tmp_path), topic)
    table.commit([], {1: (0, 0)}, "another")
    stale.commit([], {0: (0, 10)}, "mine")
    assert state_of(table_of(tmp_path, topic)).next == {0: 10, 1: 0}


@pytest.mark.parametrize("taken", [(5, 20), (11, 20), (0, 10), (10, 9)])
def test_offsets_neither_jump_nor_move_back(taken: tuple[int, int]) -> None:
    with pytest.raises(OffsetConflict):
        check_ranges(State(next={0: 10}), {0: taken})


def test_a_topic_that_was_made_again_is_refused(log: Log, tmp_path: Path) -> None:
    topic = log.topic()
    log.send(topic, numbered(0, 10))
    table = open_table(job(log, tmp_path), topic)
    table.commit([], {0: (0, 50)}, "from the first life of the topic")
    with pytest.raises(IngestError, match="never taken back"):
        ingest_topic(job(log, tmp_path), topic)


def test_deleted_records_are_a_loss_that_is_said(log: Log, tmp_path: Path) -> None:
    from chronik.pipeline.client import Cluster

    class Deleted(Cluster):
        """A cluster whose log begins at 7."""

        def offsets(self, wanted: Any, isolation: int = 0) -> Any:
            return dict.fromkeys(wanted, 7)

    with pytest.raises(DataLoss, match="begins at 7"):
        plan(Deleted(""), State(next={0: 3}), "t", {("t", 0): 9}, 100)


def test_plans_share_a_commit_between_partitions() -> None:
    from chronik.pipeline.client import Cluster

    class Full(Cluster):
        """Two partitions that begin at 0."""

        def offsets(self, wanted: Any, isolation: int = 0) -> Any:
            return dict.fromkeys(wanted, 0)

    target = {("t", 0): 1_000, ("t", 1): 5, ("t", 2): 0}
    ranges = plan(Full(""), State(next={0: 100}), "t", target, 200)
    expected = [OffsetRange("t", 0, 100, 200), OffsetRange("t", 1, 0, 5)]
    assert ranges == [*expected, OffsetRange("t", 2, 0, 0)]
    known = State(next={0: 100, 1: 0, 2: 0})
    assert plan(Full(""), known, "t", target, 200) == expected
    assert plan(Full(""), known, "t", {("t", 2): 0}, 200) == []


def test_a_partition_that_was_empty_is_known_from_then_on(log: Log, tmp_path: Path) -> None:
    topic = log.topic(2)
    log.send(topic, numbered(0, 10), partition=0)
    ingest_topic(job(log, tmp_path), topic)
    log.send(topic, numbered(0, 10), partition=1)
    log.delete_before(topic, 1, 5)
    with pytest.raises(DataLoss, match="begins at 5"):
        ingest_topic(job(log, tmp_path), topic)


def test_dead_letters_survive_a_crash_after_the_commit_that_names_them(
    log: Log, tmp_path: Path
) -> None:
    topic = log.topic()
    crashed = job(log, tmp_path)
    table = open_table(crashed, topic)
    table.commit([], {0: (0, 1)}, "one", [write_letter(table, 0)])
    for _ in range(2):  # the second time there is nothing left to do
        settle_bad(crashed.warehouse, open_table(job(log, tmp_path), topic))
    letters = Warehouse(tmp_path).load(table.name + "__dlq")
    assert letters is not None
    assert letters.scan().to_arrow().column("value").to_pylist() == [b"?"]


def test_dead_letters_are_not_doubled_after_their_snapshots_were_joined_and_expired(
    log: Log, tmp_path: Path
) -> None:
    from chronik.pipeline.maintenance import compact, expire

    topic = log.topic()
    table = open_table(job(log, tmp_path), topic)
    for number in range(2):
        files = [write_letter(table, number)]
        table.commit([], {0: (number, number + 1)}, f"batch {number}", files)
        settle_bad(Warehouse(tmp_path), table)
    letters = Warehouse(tmp_path).load(table.name + "__dlq")
    assert letters is not None
    assert compact(letters) == 2
    assert expire(letters, datetime.datetime.now(datetime.UTC)) == 2
    settle_bad(Warehouse(tmp_path), table)
    letters.refresh()
    found: list[Any] = letters.scan().to_arrow().column("offset").to_pylist()
    assert sorted(found) == [0, 1]


def write_letter(table: Any, offset: int) -> str:
    import pyarrow as pa

    from chronik.pipeline import dlq_table
    from chronik.pipeline.files import FileWriter

    writer = FileWriter(table.folders("x", f"{table.name}__dlq")[1], "bad")
    place = {"partition": 0, "offset": offset, "timestamp": 0}
    row = place | {"key": None, "value": b"?", "reason": "r"}
    writer.write(pa.RecordBatch.from_pylist([row], schema=dlq_table.ARROW))
    written = writer.close()
    assert written is not None
    return written.path


def test_duckdb_and_pyiceberg_read_the_same(log: Log, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    topic = log.topic(2)
    log.send(topic, numbered(0, 1_000))
    ingest_topic(job(log, tmp_path, records_max=300), topic)
    table = table_of(tmp_path, topic)
    files = [one.removeprefix("file://") for one in data_files(table)]
    query = 'SELECT count(*), sum("offset"), sum(octet_length(value)) FROM read_parquet(?)'
    counted = duckdb.connect().execute(query, [files]).fetchone()
    rows = rows_of(table)
    lengths = sum(len(row[3] or b"") for row in rows)
    assert counted == (len(rows), sum(row[1] for row in rows), lengths)


def test_topics_of_one_job_have_modes_and_names_of_their_own(log: Log, tmp_path: Path) -> None:
    events, bytes_only = log.topic(name=f"a.{log.topic()}"), log.topic()
    for topic in (events, bytes_only):
        log.send(topic, [(None, b'{"n": 1}')])
    given = Job(log.bootstrap, Warehouse(tmp_path), "json", records_max=10)
    given.modes, given.aliases = {bytes_only: "raw"}, {events: "events"}
    assert [ingest_topic(given, one).table for one in (events, bytes_only)] == [
        "events",
        bytes_only.replace("-", "_"),
    ]
    found = [Warehouse(tmp_path).existing(one) for one in (events, bytes_only)]
    assert ["n" in one.schema().names for one in found if one is not None] == [True, False]
