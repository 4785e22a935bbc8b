"""kill -9 at any point of ingest, compaction and expiry, and of the broker: the table is the log.

Points are chosen by seed among the calls that a run makes: two of each kind, and with `--soak` ten
for each of three seeds (`make soak ARGS=pipeline`).
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests import servers
from tests.pipeline.kit import Log, numbered, rows_of, rows_of_arrow
from tests.pipeline.victim import RECORDS_PER_COMMIT

from chronik.pipeline.delta_table import DeltaWarehouse
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.warehouse import Warehouse, data_files, state_of, table_name

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
POINTS, POINTS_SOAK = 2, 10
SPARK_KILLS = 3
KILLED = -signal.SIGKILL
TIMED_OUT = -signal.SIGALRM
SEEDS = [7, pytest.param(8, marks=pytest.mark.soak), pytest.param(9, marks=pytest.mark.soak)]


class Victims:
    """The process whose children die."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.pipeline.victim", str(folder / "calls")]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, action: str, log: Log, warehouse: Path, topic: str, point: int = 0) -> Any:
        """The exit code, and the number of calls where it lived."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{action} {point} {log.bootstrap} {warehouse} {topic}\n")
        self.process.stdin.flush()
        code, calls = self.process.stdout.readline().split()
        return int(code), int(calls)

    def end(self) -> None:
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victims]:
    running = Victims(tmp_path_factory.mktemp("victims"))
    yield running
    running.end()


def say(kind: str, number: int, point: int, code: int) -> None:
    """One line per round; the soak keeps them."""
    ended = "lived" if code == 0 else f"died ({-code})"
    sys.stdout.write(f"{kind} {number}: {ended} at {point}, table equals log\n")


@pytest.fixture(params=SEEDS)
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


@pytest.fixture
def points(request: pytest.FixtureRequest) -> int:
    return POINTS_SOAK if request.config.getoption("--soak", default=False) else POINTS


def check_prefix(log: Log, warehouse: Path, topic: str) -> None:
    """At every moment the table holds the log up to its offsets, each record once."""
    table = Warehouse(warehouse).load(table_name(topic))
    if table is None:
        return
    ends = state_of(table).next
    assert rows_of(table) == [row for row in log.read(topic, 2) if row[1] < ends.get(row[0], 0)]


def check_whole(log: Log, warehouse: Path, topic: str) -> None:
    table = Warehouse(warehouse).load(table_name(topic))
    assert table is not None
    assert rows_of(table) == log.read(topic, 2)


def test_ingest_may_die_anywhere(
    log: Log, tmp_path: Path, victims: Victims, points: int, chance: random.Random
) -> None:
    probe = log.topic(2)
    log.send(probe, numbered(0, 800))
    code, calls = victims.run("raw", log, tmp_path, probe)
    assert (code, calls > 0) == (0, True)
    topic = log.topic(2)
    for number in range(points):
        log.send(topic, numbered(800 * number, 800 * number + 800))
        point = chance.randrange(1, calls)
        code, _ = victims.run("raw", log, tmp_path, topic, point)
        assert code in {0, KILLED}
        check_prefix(log, tmp_path, topic)
        say("raw", number, point, code)
    assert victims.run("raw", log, tmp_path, topic)[0] == 0
    check_whole(log, tmp_path, topic)


def test_json_ingest_may_die_anywhere(
    log: Log, tmp_path: Path, victims: Victims, points: int, chance: random.Random
) -> None:
    """Columns come and go and one record in ten is bad: each record is in one table, once."""
    probe = log.topic(2)
    log.send(probe, events(0, 800))
    code, calls = victims.run("json", log, tmp_path, probe)
    assert (code, calls > 0) == (0, True)
    topic = log.topic(2)
    for number in range(points):
        log.send(topic, events(number, 800))
        point = chance.randrange(1, calls)
        code, _ = victims.run("json", log, tmp_path, topic, point)
        assert code in {0, KILLED}
        check_json(log, tmp_path, topic, whole=False)
        say("json", number, point, code)
    assert victims.run("json", log, tmp_path, topic)[0] == 0
    assert victims.run("compaction", log, tmp_path, topic)[0] == 0
    check_json(log, tmp_path, topic, whole=True)


def events(series: int, count: int) -> list[tuple[bytes, bytes]]:
    """Each series has a column of its own."""
    good = b'{"n": %d, "series%d": "x"}'
    return [(b"k", b"broken %d" % n if n % 10 == 0 else good % (n, series)) for n in range(count)]


def check_json(log: Log, warehouse: Path, topic: str, *, whole: bool) -> None:
    table = Warehouse(warehouse).load(table_name(topic))
    if table is None:
        return
    ends = state_of(table).next
    sent = [row for row in log.read(topic, 2) if whole or row[1] < ends.get(row[0], 0)]
    rows = table.scan().to_arrow().to_pylist() if sent else []
    found = sorted((row["_partition"], row["_offset"], row["n"]) for row in rows)
    good = [(p, o, json.loads(v or b"")["n"]) for p, o, _, v in sent if v and v[:1] == b"{"]
    assert found == good
    letters = Warehouse(warehouse).load(table_name(topic) + "__dlq")
    bad = [] if letters is None else rows_of(letters)
    # The letters of the last commit may still be on their way; none comes twice.
    expected = [row for row in sent if row[3] and row[3][:1] != b"{"]
    assert bad == expected if whole else set(bad) <= set(expected)
    assert len(bad) == len(set(bad))


def test_ingest_into_delta_may_die_anywhere(
    log: Log, tmp_path: Path, victims: Victims, points: int, chance: random.Random
) -> None:
    pytest.importorskip("deltalake", reason="chronik[delta] is not installed")
    probe = log.topic(2)
    log.send(probe, events(0, 800))
    code, calls = victims.run("delta", log, tmp_path, probe)
    assert (code, calls > 0) == (0, True)
    topic = log.topic(2)
    for number in range(points):
        log.send(topic, events(number, 800))
        point = chance.randrange(1, calls)
        code, _ = victims.run("delta", log, tmp_path, topic, point)
        assert code in {0, KILLED}
        check_delta(log, tmp_path, topic, whole=False)
        say("delta", number, point, code)
    assert victims.run("delta", log, tmp_path, topic)[0] == 0
    check_delta(log, tmp_path, topic, whole=True)


def check_delta(log: Log, warehouse: Path, topic: str, *, whole: bool) -> None:
    """The table holds the log up to its offsets, and no letter is there twice."""
    place = DeltaWarehouse(warehouse)
    table = place.existing(topic)
    if table is None:
        return
    ends = table.state().next
    sent = [row for row in log.read(topic, 2) if whole or row[1] < ends.get(row[0], 0)]
    found = table.table.to_pyarrow_table().to_pylist() if sent else []
    good = [(p, o, json.loads(v or b"")["n"]) for p, o, _, v in sent if v and v[:1] == b"{"]
    assert sorted((row["_partition"], row["_offset"], row["n"]) for row in found) == good
    letters = place.existing(topic, "__dlq")
    bad = [] if letters is None else rows_of_arrow(letters.table.to_pyarrow_table())
    expected = [row for row in sent if row[3] and row[3][:1] != b"{"]
    assert bad == expected if whole else set(bad) <= set(expected)
    assert len(bad) == len(set(bad))


def test_care_of_delta_may_die_anywhere(
    log: Log, tmp_path: Path, victims: Victims, points: int, chance: random.Random
) -> None:
    """delta-rs does its work in few calls, so the moments are times: inside of those calls too."""
    pytest.importorskip("deltalake", reason="chronik[delta] is not installed")
    topic = log.topic(2)
    duration_s = 0.0
    for number in range(points + 1):
        log.send(topic, events(number, 800))
        assert victims.run("delta", log, tmp_path, topic)[0] == 0
        begun = time.perf_counter()
        point = -round(chance.uniform(0.001, duration_s) * 1e6) if number else 0
        code, _ = victims.run("delta-care", log, tmp_path, topic, point)
        assert code in ({0, TIMED_OUT} if number else {0})
        duration_s = duration_s or time.perf_counter() - begun
        check_delta(log, tmp_path, topic, whole=True)
        say("delta-care", number, point, code)
    assert victims.run("delta-care", log, tmp_path, topic)[0] == 0
    check_delta(log, tmp_path, topic, whole=True)
    table = DeltaWarehouse(tmp_path).existing(topic)
    assert table is not None
    left = (tmp_path / "delta" / table.name).rglob("*.parquet")
    on_disk = {f"file://{one}" for one in left if one.parent.name != "_delta_log"}
    assert on_disk == set(table.files())


@pytest.mark.parametrize("action", ["compaction", "expiry"])
def test_maintenance_may_die_anywhere(
    log: Log, tmp_path: Path, victims: Victims, points: int, chance: random.Random, action: str
) -> None:
    topic = log.topic(2)
    sent = 0
    calls = 0
    for number in range(points + 1):
        # New small files and snapshots each time, and the rest of a killed run of the other kind.
        log.send(topic, numbered(sent, sent + 800))
        sent += 800
        assert victims.run("raw", log, tmp_path, topic)[0] == 0
        point = chance.randrange(1, calls) if number else 0
        code, seen = victims.run(action, log, tmp_path, topic, point)
        assert code in ({0, KILLED} if number else {0})
        calls = calls or seen
        check_whole(log, tmp_path, topic)
        say(action, number, point, code)
    assert victims.run("compaction", log, tmp_path, topic)[0] == 0
    assert victims.run("expiry", log, tmp_path, topic)[0] == 0
    check_whole(log, tmp_path, topic)
    table = Warehouse(tmp_path).load(table_name(topic))
    assert table is not None
    files = {one.removeprefix("file://") for one in data_files(table)}
    assert {str(one) for one in tmp_path.rglob("*.parquet")} == files


def test_the_broker_may_die_under_an_ingest(
    tmp_path: Path, points: int, chance: random.Random
) -> None:
    """The node is killed at seeded moments and returns on the same data; ingest waits for it."""
    with servers.serving("chronik", tmp_path / "node") as node:
        log = Log(node.bootstrap)
        topic = log.topic(2)
        place = tmp_path / "warehouse"
        for number in range(points):
            log.send(topic, numbered(3_000 * number, 3_000 * number + 3_000))
            crash = threading.Thread(target=dies_and_returns, args=(node, chance.uniform(0, 0.03)))
            ingest_topic(crashing(log, place, crash, chance.randrange(10)), topic)
            crash.join()
            check_whole(log, place, topic)
            sys.stdout.write(f"broker {number}: killed and back, table equals log\n")


def dies_and_returns(node: servers.Server, after_s: float) -> None:
    time.sleep(after_s)
    node.kill()
    node.start()


def crashing(log: Log, place: Path, crash: threading.Thread, moment: int) -> Job:
    """A job in which the crash begins with the moment-th task."""
    job = Job(log.bootstrap, Warehouse(place), records_max=RECORDS_PER_COMMIT, parallelism=2)
    tasks = count()

    def task(work: Callable[[Any], Any], one: Any) -> Any:
        if next(tasks) == moment:
            crash.start()
        return work(one)

    job.tasks = lambda work, ranges: [task(work, one) for one in ranges]
    return job


@pytest.mark.soak
@pytest.mark.spark
def test_the_command_may_die_with_spark_and_all(
    log: Log, tmp_path: Path, chance: random.Random
) -> None:
    """The command as a user runs it; the JVM and its workers end with the process."""
    topic = log.topic(2)
    for number in range(SPARK_KILLS):
        log.send(topic, numbered(20_000 * number, 20_000 * number + 20_000))
        moment = chance.uniform(0, 2)
        running = start_command(log, tmp_path, topic, "--records-per-commit", "500")
        wait_for_commits(tmp_path, topic, number)
        time.sleep(moment)
        running.kill()
        running.wait()
        assert spark_is_gone(running.pid)
        check_prefix(log, tmp_path, topic)
        say("command", number, round(moment * 1e6), KILLED)
    assert start_command(log, tmp_path, topic, "--once").wait(120) == 0
    check_whole(log, tmp_path, topic)


def start_command(log: Log, place: Path, topic: str, *more: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "chronik", "pipeline", "ingest", topic, *more]
    command += ["-b", log.bootstrap, "-w", str(place)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)


def wait_for_commits(place: Path, topic: str, number: int) -> None:
    """Until the new records begin to come into the table."""
    deadline = time.perf_counter() + 120
    while time.perf_counter() < deadline:
        if (place / "catalog.db").exists():
            table = Warehouse(place).load(table_name(topic))
            if table is not None and sum(state_of(table).next.values()) > 20_000 * number:
                return
        time.sleep(0.05)
    raise AssertionError("nothing was committed")


def spark_is_gone(session: int) -> bool:
    """No process of the command's session is left after a while."""
    deadline = time.perf_counter() + 30
    while time.perf_counter() < deadline:
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
