"""Long runs: rounds judged one by one say what the whole run would, in bounded memory."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.audit.ledgers import clean
from tests.servers import Server

from chronik.audit.anomaly import Policy
from chronik.audit.ledger import LedgerWriter, read_rows
from chronik.audit.measures import POINTS_MAX
from chronik.audit.rounds import Judged, Round, Totals, judge_round
from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.send_log import SendLog
from chronik.audit.verdict import judge
from chronik.cli.verify import verify

ROUND_RECORDS = 10


def send(sequence: int) -> Row:
    place = Row(Kind.SEND, "p0", sequence + 1, sequence + 2, "t", 0, sequence)
    return place._replace(sequence=sequence, checksum=sequence, outcome=Outcome.OK)


def read(sequence: int, offset: int | None = None) -> Row:
    place = Row(Kind.RECORD, "c0", end_ns=sequence + 3, topic="t", partition=0)
    at = sequence if offset is None else offset
    return place._replace(offset=at, sender="p0", sequence=sequence, checksum=sequence)


def write(folder: Path, rows: list[Row]) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.ledger"
    with LedgerWriter(path, "run", "c0") as ledger:
        for row in rows:
            ledger.append(row)
    return path


def ended(number: int, files: list[Path], end: int | None = None) -> Round:
    first = (number - 1) * ROUND_RECORDS
    at = first + ROUND_RECORDS if end is None else end
    return Round(number, "t", first, number, number + 1, {0: first}, {0: at}, files)


def anomalies(rows: list[Row], folder: Path, number: int = 2, end: int | None = None) -> list[str]:
    judged = judge_round(ended(number, [write(folder, rows)], end), Policy())
    return [found.name for found in judged.verdict.anomalies]


def second_round() -> list[Row]:
    return [row for n in range(10, 20) for row in (send(n), read(n))]


def test_a_round_is_judged_by_its_own_range(tmp_path: Path) -> None:
    assert anomalies(second_round(), tmp_path) == []


def test_what_a_rebalance_gave_again_from_an_earlier_round_is_no_phantom(tmp_path: Path) -> None:
    rows = [Row(Kind.ASSIGN, "c0", topic="t", partition=0, position=7, detail="rebalance")]
    again = [read(7), read(8), read(9)]
    judged = judge_round(ended(2, [write(tmp_path, rows + again + second_round())]), Policy())
    assert judged.verdict.ok
    assert judged.given_again == 3


def test_an_earlier_value_at_a_new_offset_is_not_taken_for_a_redelivery(tmp_path: Path) -> None:
    assert anomalies([*second_round(), read(3, offset=20)], tmp_path, end=21) == ["phantom"]


def test_a_loss_inside_a_round_is_found(tmp_path: Path) -> None:
    rows = [row for row in second_round() if row != read(14)]
    assert anomalies(rows, tmp_path) == ["lost-write"]


def test_a_log_that_ends_before_the_round_began_is_truncated(tmp_path: Path) -> None:
    assert anomalies([], tmp_path, end=8) == ["truncation"]


def test_totals_of_rounds_are_those_of_the_whole(tmp_path: Path) -> None:
    totals = Totals()
    for number in (1, 2):
        rows = [row for n in range(number * 10 - 10, number * 10) for row in (send(n), read(n))]
        totals.add(judge_round(ended(number, [write(tmp_path, rows)]), Policy()))
    found = totals.verdict()
    assert found.ok
    assert found.measures["sends"] == {"ok": 20}
    assert found.measures["values_read"] == 20
    (partition,) = found.measures["partitions"].values()
    assert (partition["sent"], partition["offset_min"], partition["offset_max"]) == (20, 0, 19)


def test_totals_do_not_grow_with_the_number_of_rounds() -> None:
    totals = Totals()
    verdict = judge(clean(20))
    for number in range(1, 1_000):
        totals.add(Judged(ended(number, []), verdict, 0))
    assert totals.rounds == 999
    assert len(totals.series) <= 2 * POINTS_MAX
    assert totals.verdict().measures["over_time"]["seconds"][-1] == totals.series[-1][0]


def test_rotated_ledgers_hold_each_send_once(tmp_path: Path) -> None:
    files = [tmp_path / f"{n}.ledger" for n in range(3)]
    ledger = LedgerWriter(files[0], "run", "p0")
    log = SendLog(ledger, "t")
    for number, path in enumerate(files[1:]):
        log.begin(2 * number, [1, 2], transaction=number)
        log.acked([2 * number, 2 * number + 1], [0, 0], [2 * number, 2 * number + 1])
        log.rotate(path)
    log.close()
    ledger.close()
    rows = read_rows(files)
    assert [(row.sequence, row.outcome, row.transaction) for row in rows] == [
        (0, "ok", 0),
        (1, "ok", 0),
        (2, "ok", 1),
        (3, "ok", 1),
    ]


def test_a_send_that_ends_after_its_file_was_rotated_is_known_in_the_end(tmp_path: Path) -> None:
    first, second = tmp_path / "0.ledger", tmp_path / "1.ledger"
    ledger = LedgerWriter(first, "run", "p0")
    log = SendLog(ledger, "t", 10)
    log.begin(0, [1, 2])
    log.rotate(second)
    log.begin(2, [3])
    log.acked([0, 1, 2], [0, 0, 0], [0, 1, 2])
    log.close()
    ledger.close()
    assert [row.outcome for row in read_rows([first])] == ["info", "info"]
    assert [row.outcome for row in read_rows([second])] == ["ok", "ok", "ok"]


@pytest.mark.parametrize("text", ["0", "-3s", "soon", "nan", ""])
def test_a_duration_that_is_none_is_refused(text: str) -> None:
    asked = ["soak", "--bootstrap", "127.0.0.1:1", "--duration", text]
    ran = CliRunner().invoke(verify, asked)
    assert ran.exit_code == 2
    assert "is no duration" in ran.output


@pytest.mark.integration
def test_a_soak_with_a_group_is_judged_round_by_round(server: Server, tmp_path: Path) -> None:
    where = ["--bootstrap", server.bootstrap, "--ledger", str(tmp_path), "--timeout", "20"]
    long = ["--duration", "3s", "--round", "1s", "--rate", "300", "--keep", "1"]
    extra = ["--group", "--consumers", "2", "--fault-command", "true", "--fault-every", "1s"]
    ran = CliRunner().invoke(verify, ["soak", *where, *long, *extra, "--json"])
    assert ran.exit_code == 0, ran.output
    (run,) = json.loads(ran.stdout)["runs"]
    measures = run["verdict"]["measures"]
    assert run["produced"] == run["consumed"] > 0
    assert measures["rounds"] >= 2
    assert measures["faults"]["true (exit 0)"] >= 1
    kept = {path.name.split(".")[1] for path in tmp_path.glob("*-p0.*.ledger")}
    assert len(kept) == 2, "one clean round, and the file that was open at the end"


@pytest.mark.integration
@pytest.mark.chronik_only(reason="Kafka has transactions")
def test_a_cluster_without_transactions_is_told_so(server: Server) -> None:
    asked = ["large-batch", "--bootstrap", server.bootstrap, "--transactions", "--timeout", "5"]
    ran = CliRunner().invoke(verify, asked)
    assert ran.exit_code == 2
    assert "does not serve transactions" in ran.output
