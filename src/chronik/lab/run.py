"""One run: a cluster with a defect, a workload, and what the audit says of the evidence."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chronik.audit.anomaly import Level, Policy, Verdict
from chronik.audit.client_confluent import Cluster
from chronik.audit.diagnose import read_traces
from chronik.audit.diagnosis import Diagnosis
from chronik.audit.explain import explain, watermark_rows
from chronik.audit.replicas import Replicas, read_replicas
from chronik.audit.verdict import judge
from chronik.audit.verify import rows_of
from chronik.audit.workload import Plan, Progress, Reader, finish, produce
from chronik.lab.catalogue import Defect
from chronik.lab.cluster import LabCluster
from chronik.lab.stage import Stage
from chronik.trace.events import TraceEvent

STALL_NS = 2_000_000_000
"""Shorter than the auditor's own: lab runs are short, their loads small."""
RATE = 3_000.0
USUAL = {"messages": 3_000, "rate": RATE, "partitions": 3, "timeout_s": 4.0}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run and what the audit said of it."""

    defect: Defect
    plan: Plan
    verdict: Verdict
    diagnosis: Diagnosis
    installed: bool = True
    """False for a control: the same run without the defect."""

    @property
    def title(self) -> str:
        return self.defect.title + ("" if self.installed else " (control)")

    @property
    def sent(self) -> int:
        return self.plan.messages

    @property
    def consumed(self) -> int:
        return int(self.verdict.measures["values_read"])

    @property
    def missing(self) -> int:
        return self.plan.messages - self.consumed

    @property
    def anomalies(self) -> list[str]:
        """What the verdict found, apart from what Kafka allows."""
        found = self.verdict.anomalies
        return list(dict.fromkeys(one.name for one in found if one.level != Level.ALLOWED))

    @property
    def cause(self) -> str:
        return self.diagnosis.cause if self.diagnosis.causes else ""

    @property
    def clean(self) -> bool:
        """Nothing to say, and nothing missing but what its producer was never told is there."""
        sends = self.verdict.measures["sends"]
        unknown = sum(sends.values()) - sends.get("ok", 0)
        return not (self.anomalies or self.cause) and self.missing <= unknown

    @property
    def named(self) -> bool:
        """The audit said what this defect is; without one, that there is none."""
        if not self.defect.cause:
            return self.clean and not self.missing
        if not self.installed:
            return self.clean
        return self.defect.anomaly in self.anomalies and self.cause == self.defect.cause

    def to_dict(self) -> dict[str, Any]:
        return {
            "defect": self.defect.name,
            "consumed": self.consumed,
            "missing": self.missing,
            "anomalies": self.anomalies,
            "cause": self.cause,
            "named": self.named,
        }


def run_defect(defect: Defect, folder: Path, *, installed: bool = True) -> Outcome:
    """Starts the nodes, runs the workload, stops everything, then audits what is left on disk."""
    cluster = LabCluster(
        folder,
        defect.nodes,
        defect.name if installed and defect.cause else "",
        defect.faults,
        defect.one_address,
    )
    with cluster:
        plan = _plan(defect, folder, cluster.bootstrap)
        _work(defect, cluster, plan)
        alive = cluster.alive
    events = read_traces(*(cluster.data(node) / "traces" for node in range(1, defect.nodes + 1)))
    # A node that was killed may hold what was never committed: its files prove nothing.
    files = {f"node {node}": cluster.data(node) for node in alive}
    replicas = read_replicas(files, plan.topic, plan.run)
    return audit(defect, plan, events, replicas, installed=installed)


def audit(
    defect: Defect,
    plan: Plan,
    events: list[TraceEvent],
    replicas: Replicas,
    *,
    installed: bool = True,
) -> Outcome:
    """The verdict on ledgers and watermarks; the cause by traces and files too."""
    ledger = rows_of(plan)
    own = [event for event in events if event.topic in (plan.topic, None)]
    policy = Policy(STALL_NS, Level.FAIL, at_least_once=plan.at_least_once)
    verdict = judge([*ledger, *watermark_rows(own)], policy)
    diagnosis = explain(ledger, own, replicas, STALL_NS)
    return Outcome(defect, plan, verdict, diagnosis, installed)


def _plan(defect: Defect, folder: Path, bootstrap: str) -> Plan:
    settings: dict[str, Any] = {**USUAL, "replication": defect.nodes, **defect.plan}
    run = secrets.randbits(63)
    return Plan(bootstrap, f"lab-{defect.name}", run, folder / "ledger", **settings)


def _work(defect: Defect, cluster: LabCluster, plan: Plan) -> None:
    """As `audit.workload.run`, with the moments at which something is done to the cluster."""
    plan.ledger.mkdir(parents=True, exist_ok=True)
    client = Cluster(plan.bootstrap)
    client.create_topic(plan.topic, plan.partitions, plan.replication)
    progress = Progress()
    reader = Reader(plan, "c0", progress)
    stage = Stage(cluster, plan, progress, reader, defect.moments)
    if not defect.reader_waits:
        reader.start()
    produce(plan, progress, stage.look)
    finish(client, plan, reader, progress, stage.look)
