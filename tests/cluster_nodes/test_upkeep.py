"""What a cluster does by itself: preferred leaders return, watermarks are written and watched."""

import signal
from collections.abc import Iterator

import pytest
from tests.cluster_nodes.kit import NODES, Cluster, ask, eventually
from tests.cluster_nodes.load import Load
from tests.faults.nodes import produce_request

from chronik.storage.checkpoints import HIGH_WATERMARKS, read_offsets
from chronik.storage.fs import RealFileSystem

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def tended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(
        tmp_path_factory.mktemp("tended"),
        "--set=leader.imbalance.check.interval.seconds=1",
        "--set=replica.high.watermark.checkpoint.interval.ms=1000",
    )
    with made.running() as running:
        yield running


def test_preferred_leaders_return_without_an_operator(tended: Cluster) -> None:
    tended.create("balanced", 6)
    preferred = {p: one.replica_nodes[0] for p, one in tended.partitions("balanced").items()}
    victim = next(node for node in NODES if node != tended.controller())
    with Load(tended.bootstrap, "balanced", 6) as load:
        load.wait_acked(100)
        tended.kill(victim)
        eventually(lambda: leaders(tended).isdisjoint({victim, -1}))
        tended.start(victim)
        eventually(lambda: {p: tended.leader("balanced", p) for p in preferred} == preferred)
        load.wait_acked(100)
    assert not load.failed


def leaders(cluster: Cluster) -> set[int]:
    return {one.leader_id for one in cluster.partitions("balanced").values()}


def test_watermarks_are_written_on_every_replica(tended: Cluster) -> None:
    tended.create("written")
    for n in range(3):
        ask(tended.any_port(), produce_request("written", b"%d" % n), 9)
    for node in NODES:
        path = str(tended.data(node))
        eventually(
            lambda path=path: (  # type: ignore[misc]
                read_offsets(RealFileSystem(), path, HIGH_WATERMARKS).get("written-0") == 3
            )
        )


def test_fm26_a_log_end_that_runs_ahead_of_the_watermark_is_reported(tended: Cluster) -> None:
    tended.create("ahead")
    leader = tended.leader("ahead")
    hung = next(n for n in NODES if n not in {leader, tended.controller()})
    tended.signal(hung, signal.SIGSTOP)
    for n in range(15):
        request = produce_request("ahead", b"%d" % n)
        request.acks = 1
        assert (
            not ask(tended.ports[leader], request, 9).responses[0].partition_responses[0].error_code
        )
    level = 'chronik_partitions_behind{level="warn"}'
    eventually(lambda: tended.metrics(leader)[level] >= 1, 2)
    tended.resume(hung)
    eventually(lambda: tended.metrics(leader)[level] == 0)
    tended.wait_full_isr("ahead")
