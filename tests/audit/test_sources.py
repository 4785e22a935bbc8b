"""Ledgers of Kafka's own Verifiable clients, and the commands that judge and report."""

import json
import random
import time
from pathlib import Path

from click.testing import CliRunner
from tests.audit.ledgers import MUTATIONS, clean

from chronik.audit.ledger import LedgerWriter
from chronik.audit.report import write_report
from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.verdict import judge
from chronik.audit.verifiable import parse_lines
from chronik.cli.audit import audit
from chronik.trace.settings import TraceSettings
from chronik.trace.sinks import open_trace


def success(value: str, offset: int) -> str:
    return json.dumps(
        {
            "timestamp": 1_700_000_000_000 + offset,
            "name": "producer_send_success",
            "key": None,
            "value": value,
            "offset": offset,
            "topic": "t",
            "partition": 0,
        }
    )


def data(value: str, offset: int) -> str:
    values = {"timestamp": 1, "name": "record_data", "key": None, "value": value}
    return json.dumps({**values, "topic": "t", "partition": 0, "offset": offset})


ASSIGNED = json.dumps(
    {"timestamp": 1, "name": "partitions_assigned", "partitions": [{"topic": "t", "partition": 0}]}
)
CONSUMED = json.dumps({"timestamp": 1, "name": "records_consumed", "count": 2, "partitions": []})
ERROR = json.dumps(
    {
        "timestamp": 5,
        "name": "producer_send_error",
        "exception": "class TimeoutException",
        "message": "expired",
        "topic": "t",
        "key": None,
        "value": "9",
    }
)


def rows(produced: list[str], consumed: list[str]) -> list[Row]:
    return [*parse_lines(produced, "producer"), *parse_lines(consumed, "consumer")]


def test_verifiable_clients_that_agree_are_ok() -> None:
    sent = [success(str(n), n) for n in range(4)]
    read = [ASSIGNED, data("0", 0), data("1", 1), CONSUMED, data("2", 2), data("3", 3), CONSUMED]
    assert judge(rows(["[warn] not JSON", *sent], read)).anomalies == []


def test_a_value_that_the_verifiable_consumer_missed_is_lost() -> None:
    sent = [success(f"1.{n}", n) for n in range(4)]
    read = [ASSIGNED, data("1.0", 0), data("1.1", 1), CONSUMED, data("1.3", 3)]
    (found,) = judge(rows(sent, read)).anomalies
    assert (found.name, found.count) == ("lost-write", 1)


def test_an_error_of_the_verifiable_producer_is_of_unknown_end() -> None:
    (send,) = parse_lines([ERROR], "producer")
    assert (send.outcome, send.sequence) == (Outcome.INFO, 9)


def test_lines_that_are_no_events_are_skipped() -> None:
    assert list(parse_lines(["[1]", "7", "{}", "", "{"], "p")) == []


def write(path: Path, found: list[Row]) -> None:
    with LedgerWriter(path, "r", "all") as ledger:
        for row in found:
            ledger.append(row)


def test_the_command_judges_ledgers_on_disk(tmp_path: Path) -> None:
    good = clean(300, seed=2)
    write(tmp_path / "good.ledger", good)
    ran = CliRunner().invoke(audit, [str(tmp_path / "good.ledger")])
    assert ran.exit_code == 0, ran.output
    bad = list(good)
    MUTATIONS["drop"][0](bad, random.Random(2))
    write(tmp_path / "bad.ledger", bad)
    page = tmp_path / "report.html"
    asked = [str(tmp_path / "bad.ledger"), "--json", "--report", str(page)]
    ran = CliRunner().invoke(audit, asked)
    assert ran.exit_code == 1
    values = json.loads(ran.output)
    assert [found["name"] for found in values["anomalies"] if found["level"] == "fail"] == [
        "lost-write"
    ]
    assert "lost-write" in page.read_text()


def test_the_command_refuses_what_holds_nothing(tmp_path: Path) -> None:
    assert CliRunner().invoke(audit, [str(tmp_path)]).exit_code == 2


def test_a_report_stands_alone_and_escapes_what_it_shows() -> None:
    evil = Row(
        Kind.RECORD, "c0", topic="<b>", partition=0, offset=1, sender="</script>", sequence=1
    )
    page = write_report("t", {"run": judge([evil])}, ["<i>finding</i>"])
    assert "<b>" not in page
    assert "<i>finding" not in page
    assert page.count("</script>") == 1
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    inside = page.split('id="verdict">')[1].split("</script>")[0]
    assert json.loads(inside)["run"]["ok"] is False


def test_the_command_says_where_values_were_lost(tmp_path: Path) -> None:
    rows = clean(100, seed=4)
    MUTATIONS["drop"][0](rows, random.Random(4))
    write(tmp_path / "bad.ledger", rows)
    settings = TraceSettings(mode="files", directory=tmp_path / "traces")
    open_trace(settings, 1, time.time_ns, time.monotonic_ns).close()
    asked = [str(tmp_path / "bad.ledger"), "--traces", str(tmp_path / "traces"), "--json"]
    values = json.loads(CliRunner().invoke(audit, asked).output)
    assert values["measures"]["where_lost"] == {"acknowledged and never appended": 1}
