"""`chronik cluster`: plans as pure functions, and the commands against three real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from tests.servers import HOST

from chronik.cli import main
from chronik.cli._balance import Assignment, NoPlaceError, evacuated, evened
from chronik.cli._cluster_state import BrokerView, ClusterState, PartitionView, problems
from chronik.cli._supervisor import Supervisor, peers, plan
from chronik.cli._wire import connected
from chronik.lab.cluster import free_ports
from chronik.model.errors import ErrorCode
from chronik.model.names import METADATA_TOPIC
from chronik.wire.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    RequestPartitionData,
    RequestTopicData,
)
from chronik.wire.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

NODES = 3
SECONDS_MAX = 30.0


@st.composite
def assignments(draw: st.DrawFn) -> tuple[Assignment, dict[int, str | None]]:
    """Partitions on up to five nodes, of which the last may be new and empty."""
    nodes = list(range(1, draw(st.integers(2, 5)) + 1))
    used = nodes if draw(st.booleans()) else nodes[:-1]
    copies = draw(st.integers(1, len(used)))
    orders = draw(st.lists(st.permutations(used), max_size=12))
    racks: dict[int, str | None] = dict.fromkeys(nodes)
    return {("t", i): tuple(order[:copies]) for i, order in enumerate(orders)}, racks


def replica_counts(assignment: Assignment, nodes: dict[int, str | None]) -> list[int]:
    counts = Counter(node for replicas in assignment.values() for node in replicas)
    return [counts[node] for node in nodes]


def leader_counts(assignment: Assignment, nodes: dict[int, str | None]) -> list[int]:
    counts = Counter(replicas[0] for replicas in assignment.values())
    return [counts[node] for node in nodes]


@given(assignments())
def test_evened_counts_differ_by_one_at_most_and_no_partition_changes_its_size(
    given_: tuple[Assignment, dict[int, str | None]],
) -> None:
    before, racks = given_
    after = {**before, **evened(before, racks)}
    counts = replica_counts(after, racks)
    assert max(counts) - min(counts) <= 1
    for key, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(before[key])
    assert evened(after, racks) == {}, "an even cluster is left alone"


def test_leaders_are_evened_without_moving_data_where_orders_are_enough() -> None:
    before: Assignment = {("t", i): (1, 2, 3) for i in range(6)}
    changed = evened(before, {1: None, 2: None, 3: None})
    after = {**before, **changed}
    assert leader_counts(after, {1: None, 2: None, 3: None}) == [2, 2, 2]
    assert all(set(replicas) == {1, 2, 3} for replicas in after.values())


def test_leaders_are_evened_along_chains() -> None:
    before: Assignment = {("t", 0): (1, 2), ("t", 1): (1, 2), ("t", 2): (2, 3), ("t", 3): (3, 1)}
    racks: dict[int, str | None] = {1: None, 2: None, 3: None}
    before[("u", 0)] = (1, 2)
    after = {**before, **evened(before, racks)}
    counts = leader_counts(after, racks)
    assert max(counts) - min(counts) <= 1


def test_a_move_never_takes_a_partition_out_of_a_rack() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b"}
    before: Assignment = {("t", i): (1, 3) for i in range(4)}
    after = {**before, **evened(before, racks)}
    assert all({racks[one] for one in replicas} == {"a", "b"} for replicas in after.values())
    assert replica_counts(after, racks) == [2, 2, 4]


def test_replicas_on_a_node_that_is_down_stay_there() -> None:
    before: Assignment = {("t", i): (9, 1) for i in range(4)}
    after = {**before, **evened(before, {1: None, 2: None})}
    assert all(9 in replicas for replicas in after.values())


def test_an_evacuated_node_holds_nothing_and_other_racks_come_first() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "b", 4: "c"}
    before: Assignment = {("t", 0): (1, 2), ("t", 1): (2, 1), ("t", 2): (3, 4)}
    assert evacuated(before, racks, 1) == {("t", 0): (4, 2), ("t", 1): (2, 4)}


def test_without_room_a_node_stays_unless_fewer_replicas_are_accepted() -> None:
    before: Assignment = {("t", 0): (1, 2)}
    racks: dict[int, str | None] = {1: None, 2: None}
    with pytest.raises(NoPlaceError, match="add a node first"):
        evacuated(before, racks, 1)
    assert evacuated(before, racks, 1, shrink=True) == {("t", 0): (2,)}


# -- what is wrong


def healthy() -> ClusterState:
    return ClusterState(
        cluster_id="c",
        brokers={i: BrokerView(i, "h", 9092, None, False) for i in (1, 2, 3)},
        partitions={("t", 0): PartitionView(1, (1, 2, 3), (1, 2, 3), ahead=0)},
        topics=1,
        leader=1,
        term=5,
        committed=10,
        voters={1: 10, 2: 10, 3: 9},
    )


def no_leader(state: ClusterState) -> None:
    state.leader = -1


def fenced(state: ClusterState) -> None:
    state.brokers[3].is_fenced = True


def one_partition(**fields: Any) -> Callable[[ClusterState], None]:
    def change(state: ClusterState) -> None:
        for name, value in fields.items():
            setattr(state.partitions["t", 0], name, value)

    return change


WRONG = [
    (no_leader, [("alarm", "the metadata log has no leader")]),
    (fenced, [("alarm", "node 3 (h:9092) is fenced"), ("alarm", "2 of 3 voters run")]),
    (one_partition(leader=-1), [("alarm", "1 partition without a leader: t-0")]),
    (one_partition(isr=(1, 2)), [("warn", "1 partition under-replicated: t-0")]),
    (one_partition(ahead=10), []),
    (one_partition(ahead=11), [("warn", "1 partition with a log end more than 10 messages")]),
    (one_partition(ahead=101), [("alarm", "1 partition with a log end more than 100")]),
    (one_partition(replicas=(1, 2, 3, 4), adding=(4,)), []),
]


@pytest.mark.parametrize(("change", "expected"), WRONG)
def test_what_is_wrong_is_said(
    change: Callable[[ClusterState], None], expected: list[tuple[str, str]]
) -> None:
    state = healthy()
    change(state)
    found = problems(state)
    assert [one.level for one in found] == [level for level, _ in expected]
    for one, (_, text) in zip(found, expected, strict=True):
        assert one.text.startswith(text)


# -- real processes


class Operated:
    """A cluster of real processes and a person who types commands."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_ports(2 * NODES + 2)
        self.plans = plan(NODES, self.port, str(directory))
        options = ["--durability=os", "--set=default.replication.factor=3"]
        options += ["--set=min.insync.replicas=2", "--set=offsets.topic.num.partitions=3"]
        self.supervisor = Supervisor(self.plans, HOST, options)
        self.joined: dict[int, subprocess.Popen[bytes]] = {}

    def run(self, *arguments: object) -> Result:
        environment = {"CHRONIK_BOOTSTRAP": self.supervisor.bootstrap}
        return CliRunner(env=environment).invoke(main, [str(one) for one in arguments])

    def done(self, *arguments: object) -> str:
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stderr

    def status(self) -> dict[str, Any]:
        result = self.run("cluster", "status", "--json")
        if not result.stdout:
            return {"problems": [result.stderr]}  # nobody answers
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def wait(self, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition(found := self.status()):
            assert time.monotonic() < deadline, f"{what}: {found}"
            time.sleep(0.1)
        return found

    def wait_well(self) -> None:
        self.wait(lambda found: not found["problems"], "all is well")

    def crash(self, *nodes: int) -> None:
        """Kills nodes at once, and those that joined, and starts them all again."""
        for node in nodes:
            self.supervisor.kill(node)
        late = list(self.joined)
        for node in late:
            self.leave(node, signal.SIGKILL)
        for node in nodes:
            self.supervisor.restart(node)
        for node in late:
            self.join(node)

    def leave(self, node_id: int, number: signal.Signals) -> None:
        """Ends a node that joined."""
        node = self.joined.pop(node_id)
        node.send_signal(number)
        node.wait()

    def join(self, node_id: int) -> None:
        """Starts one more node, configured by its environment alone."""
        port = self.port + 2 * NODES
        environment = {
            "CHRONIK_NODE_ID": str(node_id),
            "CHRONIK_NODE_DATA": str(self.directory / f"node-{node_id}"),
            "CHRONIK_NODE_DURABILITY": "os",
            "CHRONIK_LISTEN_PORT": str(port),
            "CHRONIK_PEER_PORT": str(port + 1),
            "CHRONIK_CLUSTER_PEERS": peers(self.plans, HOST),
            "CHRONIK_CLUSTER_JOIN": "true",
        }
        with (self.directory / f"node-{node_id}.log").open("ab") as log:
            self.joined[node_id] = subprocess.Popen(
                [sys.executable, "-m", "chronik", "node"],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    cluster = Operated(tmp_path_factory.mktemp("cluster"))
    try:
        assert cluster.supervisor.start()
        cluster.wait(lambda found: len(found["brokers"]) == NODES, "all nodes register")
        cluster.done("topic", "create", "t", "--partitions", 6, "--replication", 3)
        yield cluster
    finally:
        cluster.supervisor.stop()


@pytest.mark.integration
def test_status_shows_a_dead_node_and_rebalance_gives_it_its_partitions_back(
    operated: Operated,
) -> None:
    operated.wait_well()
    operated.done("cluster", "rebalance", "--replicas")
    before = operated.status()
    assert [one["leaders"] for one in before["brokers"]] == [2, 2, 2]
    assert [one["replicas"] for one in before["brokers"]] == [6, 6, 6]
    assert sum(one["is_controller"] for one in before["brokers"]) == 1
    assert (before["topics"], before["partitions"]["total"]) == (1, 6)
    assert operated.run("cluster", "status").exit_code == 0

    operated.supervisor.kill(2)
    found = operated.wait(lambda one: one["brokers"][1]["state"] == "fenced", "it is missed")
    assert found["partitions"]["under_replicated"] == 6
    assert found["partitions"]["without_leader"] == 0
    result = operated.run("cluster", "status")
    assert result.exit_code == 1
    assert "is fenced: it is down" in result.stdout
    with connected(operated.supervisor.bootstrap) as node:
        answer = node.ask(
            RemoveRaftVoterRequest(cluster_id=None, voter_id=3), RemoveRaftVoterResponse
        )
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "only [1] of the voters [1, 2] that would stay are alive" in str(answer.error_message)

    operated.supervisor.restart(2)
    operated.wait_well()
    operated.done("cluster", "rebalance")
    after = operated.status()
    assert after["partitions"]["not_preferred_leader"] == 0
    assert [one["leaders"] for one in after["brokers"]] == [2, 2, 2]


@pytest.mark.integration
def test_transfer_leader_moves_the_controller_there_and_back(operated: Operated) -> None:
    operated.wait_well()
    for node in (1, 3, 2):
        operated.done("cluster", "transfer-leader", node)
        assert operated.status()["controller"] == node
    result = operated.run("cluster", "transfer-leader", 9)
    assert result.exit_code == 1
    assert "node 9 is no voter; these are: 1, 2, 3" in result.stderr
    partition = RequestPartitionData(leader_epoch=1, preferred_successors=[1])
    topic = RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    with connected(operated.supervisor.bootstrap) as connection:
        answer = connection.ask(EndQuorumEpochRequest(topics=[topic]), EndQuorumEpochResponse, 0)
    (found,) = answer.topics[0].partitions
    assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert operated.status()["controller"] == 2


class Load:
    """Records that must all be acknowledged, whatever is done to the cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._failures: list[object] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})

    def send(self, count: int = 500) -> None:
        for number in range(count):
            self._producer.produce("t", str(number), on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failures.append(error)

    def check(self) -> None:
        assert self._producer.flush(SECONDS_MAX) == 0
        assert not self._failures


@contextmanager
def joined(operated: Operated, node_id: int, load: Load) -> Iterator[None]:
    """One node more, with a vote and its share of the replicas."""
    operated.join(node_id)
    try:
        load.send()
        operated.done("cluster", "add-node", node_id)
        load.send()
        operated.wait_well()
        operated.done("cluster", "rebalance", "--replicas")
        yield
    finally:
        for node in list(operated.joined):
            operated.leave(node, signal.SIGKILL)


def voters(status: dict[str, Any]) -> list[int]:
    return [one["id"] for one in status["quorum"]["voters"]]


@pytest.mark.integration
def test_a_node_joins_takes_its_share_survives_a_crash_of_all_and_leaves_under_load(
    operated: Operated,
) -> None:
    operated.wait_well()
    refused = operated.run("cluster", "add-node", 4, "--timeout", 0)
    assert "node 4 has not joined: start it with --join" in refused.stderr
    load = Load(operated.supervisor.bootstrap)
    with joined(operated, 4, load):
        assert "Node 4 is a voter" in operated.done("cluster", "add-node", 4)
        found = operated.status()
        assert voters(found) == [1, 2, 3, 4]
        counts = [one["replicas"] for one in found["brokers"]]
        assert max(counts) - min(counts) <= 1
        load.check()

        operated.crash(1, 2, 3)
        operated.wait_well()
        load.send()
        operated.done("cluster", "transfer-leader", 4)
        # Its replicas and its vote go while it runs; its name goes when it is stopped.
        waiting = operated.run("cluster", "remove-node", 4, "--timeout", 0)
        assert "node 4 still runs: stop it, then run this again" in waiting.stderr
        assert voters(operated.status()) == [1, 2, 3]
        operated.leave(4, signal.SIGTERM)
        operated.done("cluster", "remove-node", 4)
    load.check()
    assert [one["id"] for one in operated.status()["brokers"]] == [1, 2, 3]
    operated.wait_well()


@pytest.mark.integration
def test_describe_configs_shows_what_the_node_was_told(operated: Operated) -> None:
    operated.wait_well()
    shown = operated.run("config", "describe", "--broker", 1, "--json").stdout
    values = {one["name"]: one["value"] for one in json.loads(shown)}
    assert (values["node.id"], values["broker.id"]) == ("1", "1")
    assert values["listeners"] == f"PLAINTEXT://{HOST}:{operated.port}"
    assert values["log.dirs"] == operated.plans[0].data
    assert values["min.insync.replicas"] == "2"
