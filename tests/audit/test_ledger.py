"""Ledgers on disk: what is written is read back, also when the writer was killed."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.audit.ledger import (
    SCHEMA,
    LedgerWriter,
    export_parquet,
    ledger_files,
    read_rows,
    read_table,
)
from chronik.audit.payload import PayloadWriter, read_payload
from chronik.audit.record_log import Polled, RecordLog
from chronik.audit.rows import NONE, Kind, Outcome, Row
from chronik.audit.send_log import INTENT_RANGE, SendLog

BYTES_PER_SEND_MAX = 20


def test_rows_of_all_kinds_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [
        Row(kind, "p0", n, n + 7, "t", n % 3, n * 11, "p1", n, checksum=n, detail=f"d{n}", run="r")
        for n, kind in enumerate(Kind)
        if kind != Kind.INTENT
    ]
    with LedgerWriter(tmp_path / "a.ledger", "r", "p0") as ledger:
        for row in rows:
            ledger.append(row)
    assert read_rows([tmp_path / "a.ledger"]) == rows
    assert read_table(tmp_path / "a.ledger").schema == SCHEMA


@settings(max_examples=25)
@given(seed=st.integers(0, 1_000), count=st.integers(1, 300))
def test_every_send_has_one_outcome(seed: int, count: int, tmp_path_factory: object) -> None:
    rng = random.Random(seed)
    path = Path(tmp_path_factory.mktemp("l")) / "a.ledger"  # type: ignore[attr-defined]
    with LedgerWriter(path, "r", "p0") as ledger:
        log = SendLog(ledger, "t", sequences_max=count)
        begun = 0
        waiting: list[int] = []
        while begun < count:
            size = min(rng.randrange(1, 20), count - begun)
            log.begin(begun, [n * 3 for n in range(begun, begun + size)])
            waiting.extend(range(begun, begun + size))
            begun += size
            rng.shuffle(waiting)
            acked, waiting = waiting[:5], waiting[5:]
            log.acked(acked, [n % 3 for n in acked], acked)
            if waiting and rng.random() < 0.3:
                log.ended(waiting.pop(), Outcome.FAIL, "MSG_SIZE_TOO_LARGE")
        log.close()
    sends = {row.sequence: row for row in read_rows([path])}
    assert sorted(sends) == list(range(count))
    for n, row in sends.items():
        if row.outcome == Outcome.OK:
            assert (row.offset, row.partition, row.checksum) == (n, n % 3, n * 3)
            assert row.begin_ns <= row.end_ns
        else:
            unknown = n in waiting
            assert row.outcome == (Outcome.INFO if unknown else Outcome.FAIL)


def test_sends_beyond_one_intent_range_are_written(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    total = INTENT_RANGE + 100
    with LedgerWriter(path, "r", "p0") as ledger:
        log = SendLog(ledger, "t")
        log.begin(0, [1] * INTENT_RANGE)
        log.begin(INTENT_RANGE, [2] * 100)
        late = list(range(total - 1, -1, -1))
        log.acked(late, [0] * total, late)
        log.close()
    rows = read_rows([path])
    assert sorted(row.sequence for row in rows) == list(range(total))
    assert {row.outcome for row in rows} == {Outcome.OK}


def test_a_range_whose_sends_have_all_ended_is_forgotten(tmp_path: Path) -> None:
    """Else a soak of days would keep the numbers of every send."""
    with LedgerWriter(tmp_path / "a.ledger", "r", "p0") as ledger:
        log = SendLog(ledger, "t")
        log.begin(0, [1] * INTENT_RANGE)
        acked = list(range(1, INTENT_RANGE))
        log.acked(acked, [0] * len(acked), acked)
        log.flush()
        assert log._blocks
        log.ended(0, Outcome.FAIL, "refused")
        assert not log._blocks


KILLED = """
import sys
from pathlib import Path
from chronik.audit.ledger import LedgerWriter
from chronik.audit.send_log import SendLog
ledger = LedgerWriter(Path(sys.argv[1]), "r", "p0")
log = SendLog(ledger, "t", 1000)
log.begin(0, list(range(100)))
log.acked(list(range(40)), [0] * 40, list(range(40)))
log.flush()
log.acked([40], [0], [40])
print("ready", flush=True)
sys.stdin.read()
"""


def test_after_kill_9_every_send_is_known_and_the_rest_is_info(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(process.pid, signal.SIGKILL)
    outcomes = {row.sequence: row.outcome for row in read_rows([path])}
    assert [n for n, outcome in outcomes.items() if outcome == Outcome.OK] == list(range(40))
    assert {outcomes[n] for n in range(40, 1_000)} == {Outcome.INFO}


def test_a_torn_tail_costs_only_the_torn_batch(tmp_path: Path) -> None:
    whole = tmp_path / "a.ledger"
    with LedgerWriter(whole, "r", "p0") as ledger:
        for n in range(3):
            ledger.note(Kind.FAULT, f"fault {n}")
    data = whole.read_bytes()
    counts = []
    for size in (*range(0, len(data), 149), len(data)):
        torn = tmp_path / "torn.ledger"
        torn.write_bytes(data[:size])
        counts.append(len(read_rows([torn])))
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3}


def test_a_hundred_million_sends_fit_in_two_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    rng = random.Random(1)
    count, step = 131_072, 64
    offsets = [0, 0, 0]
    now = [0]

    def clock() -> int:
        now[0] += rng.randrange(500, 4_000)
        return now[0]

    with LedgerWriter(path, "r", "p0", now_ns=clock) as ledger:
        log = SendLog(ledger, "t")
        for first in range(0, count, step):
            log.begin(first, [rng.getrandbits(32) for _ in range(step)])
            for partition in range(3):
                mine = list(range(first + partition, first + step, 3))
                start = offsets[partition]
                offsets[partition] += len(mine)
                log.acked(mine, [partition] * len(mine), list(range(start, offsets[partition])))
        log.close()
    assert path.stat().st_size / count < BYTES_PER_SEND_MAX


def test_records_and_other_rows_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "c.ledger"
    payloads = PayloadWriter(run=5, sender=0, size=64)
    value, checksum = payloads.write(9, b"3")
    damaged = value[:-1] + b"\x00"
    with LedgerWriter(path, "r", "c0") as ledger:
        log = RecordLog(ledger, "t", run=5)
        log.append(Row(Kind.ASSIGN, partition=0, position=0))
        log.records(1, [Polled(0, 0, b"3", value), Polled(0, 1, b"3", damaged)])
        log.append(Row(Kind.SEEK, partition=0, position=7))
        log.records(2, [Polled(0, 7, None, b"not ours")])
        log.flush()
    rows = read_rows([path])
    assert [row.kind for row in rows] == ["assign", "record", "record", "seek", "record"]
    good, bad, foreign = (row for row in rows if row.kind == Kind.RECORD)
    assert (good.sender, good.sequence, good.checksum, good.key) == ("p0", 9, checksum, 3)
    assert [good.outcome, bad.outcome, foreign.outcome] == ["ok", "fail", "fail"]
    assert foreign.sequence == NONE


def test_a_value_of_another_run_keeps_its_run_in_the_name(tmp_path: Path) -> None:
    path = tmp_path / "c.ledger"
    value, _ = PayloadWriter(run=6, sender=2, size=64).write(1)
    with LedgerWriter(path, "r", "c0") as ledger:
        log = RecordLog(ledger, "t", run=5)
        log.records(1, [Polled(0, 0, None, value)])
        log.flush()
    assert read_rows([path])[0].sender == "0000000000000006/p2"


@given(sequence=st.integers(0, 2**63), key=st.binary(max_size=9), size=st.integers(32, 400))
def test_a_value_names_itself_and_any_changed_byte_shows(
    sequence: int, key: bytes, size: int
) -> None:
    value, checksum = PayloadWriter(run=77, sender=3, size=size).write(sequence, key)
    assert read_payload(value, key) == (77, 3, sequence, checksum, True)
    at = sequence % size
    changed = value[:at] + bytes([value[at] ^ 0x55]) + value[at + 1 :]
    found = read_payload(changed, key)
    assert found is None or not found.intact
    cut = read_payload(value[:-1], key)
    assert cut is None or not cut.intact


def test_parquet_holds_the_same_rows(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with LedgerWriter(tmp_path / f"{name}.ledger", "r", name) as ledger:
            ledger.note(Kind.FAULT, "kill -9 node 2")
    files = ledger_files([tmp_path])
    assert export_parquet(files, tmp_path / "all.parquet") == 2
    assert pq.read_table(tmp_path / "all.parquet")["detail"].to_pylist() == ["kill -9 node 2"] * 2
