"""The verify runs: their decision tree, their options, and a real run against a server."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.servers import Server

from chronik.audit.anomaly import Anomaly, Level, Verdict
from chronik.audit.ledger import read_rows
from chronik.audit.rows import Kind, Outcome, Row
from chronik.audit.verdict import judge
from chronik.audit.verify import Result, decide
from chronik.audit.workload import Plan, Progress
from chronik.cli.verify import verify

PLAN = Plan("127.0.0.1:1", "t", 1, Path(), messages=10)


def result(read: int, *anomalies: str) -> Result:
    rows = [
        Row(Kind.SEND, "p0", 1, 2, "t", 0, n, sequence=n, outcome=Outcome.OK) for n in range(10)
    ]
    rows += [
        Row(Kind.RECORD, "c0", topic="t", partition=0, offset=n, sender="p0", sequence=n)
        for n in range(read)
    ]
    measures = judge(rows).measures
    found = [Anomaly(name, Level.FAIL, 1) for name in anomalies]
    return Result("run", PLAN, Progress(), Verdict(not found, found, measures))


def test_two_complete_reads_leave_nothing_to_explain() -> None:
    assert decide(result(10), result(10))[0].startswith("complete")


def test_a_complete_extended_read_blames_the_limits() -> None:
    (finding,) = decide(result(8), result(10))
    assert "timeout or poll size" in finding


def test_no_change_leads_to_the_partitions_and_then_to_the_data() -> None:
    findings = decide(result(8), result(8, "lost-write"))
    assert "do not help (80.0% to 80.0%)" in findings[0]
    assert "t-0 (2 missing)" in findings[1]
    assert "records are gone from the log (lost-write)" in findings[2]
    assert "chronik diagnose" in findings[3]


def test_data_that_is_there_and_not_read_leads_to_the_fetch_path() -> None:
    findings = decide(result(7), result(8, "unseen"))
    assert "partly a matter of time (70.0% to 80.0%)" in findings[0]
    assert "is not served" in findings[2]


def test_a_cluster_that_does_not_answer_is_exit_code_2() -> None:
    asked = ["large-batch", "--bootstrap", "127.0.0.1:1", "--timeout", "1"]
    ran = CliRunner().invoke(verify, asked)
    assert ran.exit_code == 2
    assert "no broker is reachable at 127.0.0.1:1" in ran.output


@pytest.mark.parametrize(
    "options", [["--idempotent", "--acks", "1"], ["--size", "8"], ["--messages", "0"]]
)
def test_wrong_options_are_refused_before_anything_opens(options: list[str]) -> None:
    asked = ["large-batch", "--bootstrap", "127.0.0.1:1", *options]
    assert CliRunner().invoke(verify, asked).exit_code == 2


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("client", ["confluent", "kafka-python", "aiokafka"])
def test_a_run_against_a_server_is_clean(client: str, server: Server, tmp_path: Path) -> None:
    options = ["--client", client, "--messages", "300", "--timeout", "20", "--json"]
    where = ["--bootstrap", server.bootstrap, "--ledger", str(tmp_path), "--acks", "1"]
    ran = CliRunner().invoke(verify, ["per-partition", *where, *options])
    assert ran.exit_code == 0, ran.output
    values = json.loads(ran.stdout)
    (run,) = values["runs"]
    assert (run["produced"], run["consumed"]) == (300, 300)
    rows = read_rows(sorted(tmp_path.glob("*.ledger")))
    assert {row.outcome for row in rows if row.kind == Kind.SEND} == {Outcome.OK}


def test_plans_of_two_runs_have_different_ledgers() -> None:
    assert replace(PLAN, run=2).run_name != PLAN.run_name
