"""Verify and audit against Apache Kafka while its nodes die: what is lost is found and located.

The loss is made, not hoped for: the followers are stopped (SIGSTOP), so that the leader alone has
what it acknowledges with acks=1; then the leader is killed and the followers go on. They were in
the ISR all the time, so the election is a clean one, and the new leader has never seen the values.
"""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.audit.kafka_nodes import NODES, PROPERTIES, KafkaNodes, require_kafka
from tests.servers import Kafka

from chronik.audit.client_confluent import Cluster
from chronik.audit.clients import TransientError
from chronik.audit.verify import Result, verify_once
from chronik.audit.workload import Plan, Progress
from chronik.cli.audit import audit
from chronik.cli.verify import verify

pytestmark = [pytest.mark.integration, pytest.mark.soak]

MESSAGES = 3_000
RATE = 1_500.0
PAUSE_AT, KILL_AT = 1_000, 2_000
ACKS_COME_S = 1.0
ALONE_BYTES = 20_000
"""Of about 300 values of 100 bytes that partition 0 gets between the two moments."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNodes]:
    with KafkaNodes(tmp_path_factory.mktemp("kafka")) as running:
        yield running


class Accident:
    """Stops the followers of partition 0, then kills its leader, at moments of the producer."""

    def __init__(self, nodes: KafkaNodes, plan: Plan) -> None:
        self._nodes, self._plan = nodes, plan
        self._cluster = Cluster(plan.bootstrap)
        self.victim = 0
        self.others: list[int] = []
        self.killed = False
        self._before = 0

    def look(self, progress: Progress) -> None:
        if progress.sent >= PAUSE_AT and not self.victim:
            eventually(self._committed, lambda end: end > 0)
            self.victim = leader_of(self._cluster, self._plan.topic)
            self.others = [node for node in (1, 2, 3) if node != self.victim]
            self._nodes.pause(*self.others)
            self._before = self._log_bytes()
        if progress.sent >= KILL_AT and not self.killed:
            self.killed = True
            if self._plan.acks == "1":  # else it takes no more than what may be in flight
                eventually(self._log_bytes, lambda size: size - self._before >= ALONE_BYTES)
            time.sleep(ACKS_COME_S)
            self._nodes.kill(self.victim)
            self._nodes.resume(*self.others)

    def _log_bytes(self) -> int:
        """What the leader has of partition 0."""
        folder = self._nodes.data(self.victim) / f"{self._plan.topic}-0"
        return sum(file.stat().st_size for file in folder.glob("*.log"))

    def _committed(self) -> int:
        """The high watermark of partition 0: beyond 0 once the followers fetch."""
        return self._cluster.log_bounds(self._plan.topic, 1)[0][1]


def leader_of(cluster: Cluster, topic: str) -> int:
    return eventually(lambda: cluster.leaders(topic)[0][0], lambda leader: leader > 0)


def eventually(ask: Callable[[], int], good: Callable[[int], bool]) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if good(found := ask()):
                return found
        except TransientError:
            continue
        time.sleep(0.1)
    raise AssertionError("the cluster has no answer")


def all_in_sync(nodes: KafkaNodes) -> None:
    """Until every replica of every topic of the tests is in its ISR."""
    cluster = Cluster(nodes.bootstrap)
    for topic in cluster.topics():
        eventually(partial(smallest_isr, cluster, topic), lambda size: size == NODES)


def smallest_isr(cluster: Cluster, topic: str) -> int:
    return min(len(isr.split(",")) for _, isr in cluster.leaders(topic).values())


def run(nodes: KafkaNodes, ledger: Path, acks: str) -> tuple[Result, Accident]:
    exact = acks == "all"
    plan = Plan(
        nodes.bootstrap,
        f"kafka-acks-{acks}",
        20 + exact,
        ledger,
        messages=MESSAGES,
        rate=RATE,
        acks=acks,
        idempotent=exact,
        replication=3,
        timeout_s=40.0,
        at_least_once=not exact,
    )
    accident = Accident(nodes, plan)
    return verify_once(plan, accident.look), accident


def test_acks_all_is_clean_and_acks_1_loses_what_only_the_dead_leader_had(
    nodes: KafkaNodes, tmp_path: Path
) -> None:
    result, accident = run(nodes, tmp_path / "all", "all")
    assert result.verdict.ok, result.to_dict()
    assert result.consumed == MESSAGES
    nodes.revive(accident.victim)
    all_in_sync(nodes)

    result, accident = run(nodes, tmp_path / "one", "1")
    found = {one.name: one.count for one in result.verdict.anomalies}
    assert not result.verdict.ok
    assert {"lost-write", "inconsistent-offsets"} & set(found), found
    (loss,) = result.verdict.measures["losses"]
    assert loss["partition"] == "kafka-acks-1-0", "the others were not led by the dead node"
    assert loss["count"] > 100
    assert loss["leaders"][0]["leader"] == accident.victim
    assert loss["leaders"][-1]["leader"] in accident.others
    assert loss["epochs"][0] < loss["epochs"][-1]

    folders = [f"--replicas={nodes.data(node)}" for node in (1, 2, 3)]
    ran = CliRunner().invoke(audit, [str(tmp_path / "one"), "--json", "--at-least-once", *folders])
    assert ran.exit_code == 1, ran.output
    (loss,) = json.loads(ran.stdout)["measures"]["losses"]
    held = f"appended at node{accident.victim} only, never committed"
    assert held in loss["where"] or "overwritten" in loss["where"], loss


def test_one_node_killed_and_started_again_is_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_kafka()
    monkeypatch.setenv("KAFKA_PROPERTIES", PROPERTIES)
    server = Kafka(tmp_path / "kafka")
    server.start()
    plan = Plan(
        server.bootstrap,
        "kafka-one",
        30,
        tmp_path / "ledger",
        messages=MESSAGES,
        rate=RATE,
        idempotent=True,
    )
    killed: list[int] = []

    def look(progress: Progress) -> None:
        if progress.sent >= PAUSE_AT and not killed:
            killed.append(progress.sent)
            server.kill()
            server.start()

    try:
        result = verify_once(plan, look)
        assert result.verdict.ok, result.to_dict()
        assert result.consumed == MESSAGES
        transactions_are_judged(server.bootstrap)
    finally:
        server.stop()


def transactions_are_judged(bootstrap: str) -> None:
    """What was aborted is in the log and is read by nobody."""
    asked = ["per-partition", "--bootstrap", bootstrap, "--messages", "800", "--transactions", "50"]
    ran = CliRunner().invoke(verify, [*asked, "--timeout", "30", "--json"])
    assert ran.exit_code == 0, ran.output
    (done,) = json.loads(ran.stdout)["runs"]
    assert done["transactions"] == {"committed": 12, "aborted": 4}
    assert done["consumed"] == 600
    gaps = sum(row["gaps"] for row in done["verdict"]["measures"]["partitions"].values())
    assert gaps > 150, "aborted records and control records"
