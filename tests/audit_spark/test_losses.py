"""Where values were lost, and what a report draws: on Spark the same as in memory."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.audit.ledgers import MUTATIONS, clean
from tests.audit_spark.kit import write_by_process, write_traces
from tests.pipeline.batches import Row as Record
from tests.pipeline.batches import batch, marker

from chronik.audit.anomaly import Policy
from chronik.audit.diagnose import read_traces
from chronik.audit.ledger import read_rows
from chronik.audit.payload import JsonWriter, PayloadWriter, Writer
from chronik.audit.plots import plot_data
from chronik.audit.replicas import replicas_of
from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.verdict import judge
from chronik.audit.verify import add_losses
from chronik.trace.events import EventKind, TraceEvent

pytestmark = [pytest.mark.integration, pytest.mark.spark]
MS = 1_000_000
S = 1_000 * MS
SENDS = 64
NOWHERE, AT_A, OVERWRITTEN, UNSERVED = 11, 20, 30, 45
LOST = {5, 6, 7, NOWHERE, AT_A, OVERWRITTEN, UNSERVED, 62, 63}


def value(sequence: int) -> tuple[bytes, int]:
    """Both layouts that a workload writes."""
    writer: Writer = PayloadWriter(0, 0, 64) if sequence % 3 else JsonWriter(0, 0)
    return writer.write(sequence, b"k")


def happenings() -> list[Row]:
    told = "leader={} isr=1,2"
    return [
        Row(Kind.CLIENT, "p0", 5, detail="idempotent=true wall_ns=1700000000000000000"),
        Row(Kind.FAULT, "faults", 20 * MS, 21 * MS, detail="kill -9 node 1"),
        *(
            Row(Kind.EPOCH, "metadata", at * MS, topic="t", partition=0, detail=told.format(leader))
            for at, leader in ((1, 1), (2, 1), (25, 2), (40, 3))
        ),
    ]


def ledger() -> list[Row]:
    """All is acked; some of it is read by nobody."""
    rows = happenings()
    for n in range(SENDS):
        place = Row(Kind.SEND, "p0", n * MS + 7, n * MS + 9, "t", 0, n, sequence=n)
        rows.append(place._replace(checksum=value(n)[1], outcome=Outcome.OK))
    rows.append(Row(Kind.ASSIGN, "c0", topic="t", partition=0, position=0))
    for n in sorted(set(range(SENDS)) - LOST):
        place = Row(Kind.RECORD, "c0", end_ns=n * MS + 900_000, topic="t", partition=0, offset=n)
        read = place._replace(sender="p0", sequence=n, checksum=value(n)[1], outcome=Outcome.OK)
        rows.append(read._replace(poll=n // 10, epoch=n // 32))
    rows.append(Row(Kind.LOG, "final", topic="t", partition=0, position=0, offset=SENDS))
    return rows


def segment(path: Path, values: dict[int, int], damaged: int) -> None:
    """Batches of eight offsets, of which each holds the value of a sequence."""
    path.parent.mkdir(parents=True)
    data = bytearray()
    for number, base in enumerate(range(0, SENDS, 8)):
        rows = [
            Record(b"k", value(values[at])[0], offset_delta=at - base)
            for at in range(base, base + 8)
            if at in values
        ]
        one = bytearray(batch(rows, base, codec=(0, 4, 0, 3)[number % 4]))
        one[-1] ^= number == damaged
        data += one
    path.write_bytes(data + marker(1, SENDS, 7) + data[:30])


def write_replicas(folder: Path) -> dict[str, Path]:
    """Two nodes: one misses a value, one has another in its place and a damaged batch."""
    held = {n: n for n in range(SENDS) if n not in (NOWHERE, 62, 63)}
    segment(folder / "a" / "topics" / "t-0" / f"{0:020}.log", held, -1)
    other = {at: n for at, n in held.items() if at != AT_A} | {OVERWRITTEN: 3}
    segment(folder / "b" / "t-0" / f"{0:020}.log", other, 6)
    segment(folder / "b" / "t-other-0" / f"{0:020}.log", held, 2)
    return {"a": folder / "a", "b": folder / "b"}


@pytest.mark.parametrize("exact_joins", [False, True])
def test_replicas_say_where_values_were_lost(
    spark: Any, tmp_path: Path, *, exact_joins: bool
) -> None:
    from chronik.audit_spark.job import Options, audit_ledgers

    (tmp_path / "ledgers").mkdir()
    files = write_by_process(tmp_path / "ledgers", ledger())
    folders, rows = write_replicas(tmp_path), read_rows(files)
    held, expected = replicas_of(rows, folders), judge(rows)
    add_losses(expected, rows + held.rows)
    damaged: list[Any] = []
    options = Options(exact_joins=exact_joins, block_size=4, replicas=folders)
    found = audit_ledgers(spark, files, Policy(), _told(options, damaged))
    assert found.measures["losses"] == expected.measures["losses"]
    places = found.measures["losses"][0]["where"]
    assert set(places) == {
        "overwritten",
        "acked, but in no replica's log",
        "in every replica's log, not served",
        "appended at a only, never committed",
    }
    assert damaged == held.damaged


def _told(options: Any, damaged: list[Any]) -> Any:
    from dataclasses import replace

    return replace(options, on_damage=damaged.extend)


def test_nothing_lost_and_files_damaged_is_told(spark: Any, tmp_path: Path) -> None:
    from chronik.audit_spark.job import Options, audit_ledgers

    (tmp_path / "ledgers").mkdir()
    files = write_by_process(tmp_path / "ledgers", clean(40, seed=1))
    damaged: list[Any] = []
    options = _told(Options(replicas=write_replicas(tmp_path)), damaged)
    found = audit_ledgers(spark, files, Policy(), options)
    assert found.ok
    assert "losses" not in found.measures
    assert [(one.replica, one.base_offset) for one in damaged] == [("b", 48)]


def event(node: int, at_ms: int, kind: EventKind, **columns: Any) -> TraceEvent:
    wall_ns = 1_700_000_000 * S + at_ms * MS
    return TraceEvent(wall_ns, at_ms * MS + node, node, kind, "t", 0)._replace(**columns)


def traces() -> list[list[TraceEvent]]:
    """Of two nodes; the second leads from the middle on."""
    one = [event(1, 0, EventKind.STARTED)._replace(topic=None, partition=None)]
    two = [event(2, 0, EventKind.STARTED)._replace(topic=None, partition=None)]
    for n in range(SENDS):
        leads, follows = (one, two) if n < SENDS // 2 else (two, one)
        at = {"base_offset": n, "last_offset": n, "log_end": n + 1, "leader_epoch": 3}
        node = leads[0].node
        leads.append(event(node, n, EventKind.APPENDED, **at))
        leads.append(event(node, n, EventKind.WATERMARK, high_watermark=n))
        follows.append(event(3 - node, n + 1, EventKind.FOLLOWER_APPENDED, **at))
    one.append(event(1, 70, EventKind.REJECTED, error_code=6))
    one.append(event(1, 71, EventKind.REJECTED, error_code=-77))
    two.append(event(2, 72, EventKind.TRUNCATED, topic="another", log_end=5))
    return [one, two]


def stalled() -> list[Row]:
    """A consumer that stands still for seven seconds with data before it."""
    poll = Row(Kind.POLL, "c0", topic="t", partition=0, offset=9, position=3)
    return [poll._replace(begin_ns=at * S, end_ns=at * S) for at in (1, 5, 8)]


@pytest.mark.parametrize("folders", [1, 2])
def test_a_report_draws_what_it_draws_in_memory(spark: Any, tmp_path: Path, folders: int) -> None:
    from chronik.audit_spark.job import Options, audit_ledgers

    (tmp_path / "ledgers").mkdir()
    files = write_by_process(tmp_path / "ledgers", ledger() + stalled())
    nodes = [write_traces(tmp_path / f"n{n}", found) for n, found in enumerate(traces())][:folders]
    expected = plot_data(read_rows(files), read_traces(*nodes))
    options = Options(exact_joins=folders == 2, block_size=4, traces=nodes, plots=True)
    found = audit_ledgers(spark, files, Policy(), options)
    assert found.measures["plots"] == expected
    kinds = {entry["kind"] for entry in expected["timeline"]}
    assert kinds == {"fault", "election", "node", "stall"}


def test_a_report_of_a_changed_run_draws_what_it_draws_in_memory(
    spark: Any, tmp_path: Path
) -> None:
    from chronik.audit_spark.job import Options, audit_ledgers

    rows = clean(400, seed=3, partitions=12)
    MUTATIONS["drop"][0](rows, random.Random(3))
    files = write_by_process(tmp_path, rows)
    found = audit_ledgers(spark, files, Policy(), Options(block_size=8, plots=True))
    assert found.measures["plots"] == plot_data(read_rows(files))
