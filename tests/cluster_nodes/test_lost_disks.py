"""The disk of the only replica in sync is lost: the partition waits for a decision of people."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cluster_nodes.kit import NODES, Cluster, ask, eventually
from tests.faults.nodes import produce_request

from chronik.cli import main
from chronik.model.errors import ErrorCode
from chronik.trace.events import EventKind, TraceEvent
from chronik.trace.reader import events, read_table

pytestmark = pytest.mark.integration


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, "--trace", "files").running() as running:
        yield running


def seen(cluster: Cluster, node: int) -> list[TraceEvent]:
    return list(events(read_table(cluster.data(node) / "traces")))


def test_fm47_a_wiped_node_does_not_lead_with_an_empty_log(traced: Cluster) -> None:
    controller = traced.controller()
    traced.create("alone", 3, rf=1, min_insync_replicas="1")
    index, victim = next(
        (p, one.leader_id)
        for p, one in traced.partitions("alone").items()
        if one.leader_id != controller
    )
    port = traced.ports[controller]
    answer = ask(port, produce_request("alone", b"precious", partition=index), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    traced.kill(victim)
    traced.wipe(victim)
    traced.start(victim)
    state = traced.partitions("alone", port)[index]
    assert (state.leader_id, state.isr_nodes) == (-1, [])
    answer = ask(port, produce_request("alone", b"shadow", partition=index), 9)
    code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
    assert code is not ErrorCode.NONE, "a log that is gone must not be written over"
    command = ["cluster", "elect-unclean", "alone", "--yes", "--bootstrap", traced.bootstrap]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    eventually(lambda: traced.leader("alone", index, port) == victim)
    eventually(lambda: traced.end_offset("alone", index) == 0)
    traced.stop(*NODES)
    check_traces(traced, controller, victim, index)


def check_traces(cluster: Cluster, asked: int, victim: int, index: int) -> None:
    forwarded = [e for e in seen(cluster, asked) if e.kind == EventKind.FORWARDED]
    assert {(e.topic, e.partition, e.peer) for e in forwarded} >= {("alone", index, victim)}
    at_victim = [e for e in seen(cluster, victim) if e.topic == "alone" and e.partition == index]
    isrs = [e.detail for e in at_victim if e.kind == EventKind.ISR_CHANGE]
    assert isrs[-1] == str(victim)
    elections = [e for e in at_victim if e.kind == EventKind.ELECTION]
    assert victim in {e.peer for e in elections}, "stopping, it hands over to nobody"
    controllers = [
        e for e in seen(cluster, asked) if e.kind == EventKind.ELECTION and e.topic is None
    ]
    assert any(e.peer == asked for e in controllers)
