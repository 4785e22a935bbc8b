"""Runs that answer one question each: the tests of the seed notes, with a verdict at the end."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from chronik.audit.anomaly import Level, Policy, Verdict
from chronik.audit.client_confluent import Cluster
from chronik.audit.ledger import ledger_files, read_rows
from chronik.audit.location import locate_losses
from chronik.audit.loss import LOST_NAMES
from chronik.audit.plan import ledger_path
from chronik.audit.plots import plot_data
from chronik.audit.rows import Row
from chronik.audit.verdict import judge
from chronik.audit.workload import Plan, Progress, Reader, Show, finish, run

EXTENDED_TIMEOUT_FACTOR = 2
EXTENDED_POLL_RECORDS = 5_000


@dataclass(frozen=True, slots=True)
class Result:
    """One run and its verdict."""

    name: str
    plan: Plan
    progress: Progress
    verdict: Verdict

    @property
    def consumed(self) -> int:
        """Values that were read, each counted once."""
        return int(self.verdict.measures["values_read"])

    @property
    def expected(self) -> int:
        """What was sent and not taken back by an aborted transaction."""
        return self.plan.messages - self.progress.aborted_records

    @property
    def share(self) -> float:
        return self.consumed / self.expected if self.expected else 1.0

    @property
    def partitions(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = self.verdict.measures["partitions"]
        return found

    def to_dict(self) -> dict[str, Any]:
        plan = asdict(self.plan) | {"ledger": str(self.plan.ledger), "run": self.plan.run_name}
        return {
            "name": self.name,
            "plan": plan,
            "produced": self.progress.sent,
            "produce_s": round(self.progress.produce_s, 3),
            "without_outcome": self.progress.acked_left,
            "transactions": {
                "committed": self.progress.committed,
                "aborted": self.progress.aborted,
            },
            "consumed": self.consumed,
            "consume_s": {name: round(s, 3) for name, s in self.progress.read_s.items()},
            "timed_out": self.progress.timed_out,
            "verdict": self.verdict.to_dict(),
        }


def verify_once(plan: Plan, show: Show, name: str = "run") -> Result:
    """large-batch and per-partition: one run, judged from its ledgers on disk."""
    progress = run(plan, show)
    return judged(name, plan, progress, rows_of(plan))


def judged(name: str, plan: Plan, progress: Progress, rows: list[Row]) -> Result:
    verdict = judge(rows, Policy(at_least_once=plan.at_least_once))
    add_losses(verdict, rows)
    return Result(name, plan, progress, verdict)


def add_losses(verdict: Verdict, rows: list[Row]) -> None:
    """Which partitions lost what and when, where the verdict says that something was lost."""
    if any(verdict.count(name) for name in LOST_NAMES):
        verdict.measures["losses"] = locate_losses(rows)


def add_plots(result: Result) -> None:
    """For a report: what happened over time, read again from the ledgers that are there."""
    measures = result.verdict.measures
    # Of a long run only what happened to the cluster: its sends and reads fill no memory.
    rows = happenings_of(result.plan) if "rounds" in measures else rows_of(result.plan)
    measures["plots"] = plot_data(rows)


def happenings_of(plan: Plan) -> list[Row]:
    found = (ledger_path(plan, process) for process in ("metadata", "faults"))
    return read_rows([path for path in found if path.exists()])


def rows_of(plan: Plan) -> list[Row]:
    files = [path for path in ledger_files([plan.ledger]) if path.name.startswith(plan.run_name)]
    return read_rows(files)


def verify_bootstrap(plan: Plan, show: Show) -> list[Result]:
    """The same run with one bootstrap server and with all of them."""
    brokers = Cluster(plan.bootstrap, plan.timeout_s).brokers()
    plans = {
        "single broker": replace(plan, bootstrap=brokers[0], topic=f"{plan.topic}-single"),
        "all brokers": replace(
            plan, bootstrap=",".join(brokers), topic=f"{plan.topic}-all", run=plan.run + 1
        ),
    }
    return [verify_once(each, show, name) for name, each in plans.items()]


def verify_extended(plan: Plan, show: Show) -> tuple[list[Result], list[str]]:
    """A consumer with the ordinary limits and one with more time and larger polls; the findings."""
    progress = run(plan, show)
    normal = judged("normal", plan, progress, rows_of(plan))
    extended_plan = replace(
        plan,
        timeout_s=plan.timeout_s * EXTENDED_TIMEOUT_FACTOR,
        poll_records_max=EXTENDED_POLL_RECORDS,
    )
    extended_progress = Progress(sent=progress.sent, produce_s=progress.produce_s)
    reader = Reader(extended_plan, "c1", extended_progress)
    reader.start()
    finish(Cluster(plan.bootstrap), extended_plan, reader, extended_progress, show)
    rows = [row for row in rows_of(plan) if row.process not in ("c0", "final-c0")]
    extended = judged("extended", extended_plan, extended_progress, rows)
    return [normal, extended], decide(normal, extended)


def decide(normal: Result, extended: Result) -> list[str]:
    """The decision tree of the seed notes: timeout first, then partitions, then the fetch path."""
    if normal.share >= 1.0 and extended.share >= 1.0:
        return ["complete: both consumers read everything, there is nothing to explain"]
    if extended.share >= 1.0:
        return ["phase 1, timeout: the cause is the consumer's timeout or poll size, not the data"]
    improved = extended.share > normal.share
    first = "partly a matter of time" if improved else "more time and larger polls do not help"
    change = f"{normal.share:.1%} to {extended.share:.1%}"
    return [f"phase 1, timeout: {first} ({change})", *partition_findings(extended)]


def partition_findings(result: Result) -> list[str]:
    """Phases 2 and 3: which partitions are behind, and whether data is gone or not served."""
    behind = {name: row["missed"] for name, row in result.partitions.items() if row["missed"]}
    if not behind:
        return ["phase 2, partitions: all that was acknowledged has been read"]
    named = ", ".join(f"{name} ({missed} missing)" for name, missed in behind.items())
    together = len(behind) == len(result.partitions)
    findings = [f"phase 2, partitions: {'all behind' if together else 'behind'}: {named}"]
    lost = [a.name for a in result.verdict.anomalies if a.level == Level.FAIL]
    if {"lost-write", "inconsistent-offsets", "truncation"} & set(lost):
        findings.append(f"phase 3, data: records are gone from the log ({', '.join(lost)})")
    elif result.verdict.count("stall") or "unseen" in lost:
        findings.append("phase 3, fetch: the data is there and is not served: fetch path")
    findings.append("next: chronik diagnose --logs FILE... or --traces DIR names the cause")
    return findings
