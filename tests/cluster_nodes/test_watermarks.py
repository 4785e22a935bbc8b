"""From the traces of a run: how soon followers know what the leader has committed."""

import bisect
import time
from collections import defaultdict
from pathlib import Path

import pytest
from tests.cluster_nodes.kit import NODES, Cluster
from tests.cluster_nodes.load import Load
from tests.faults.nodes import is_soak

from chronik.trace.events import EventKind
from chronik.trace.reader import events, read_table

pytestmark = pytest.mark.integration
MEDIAN_MS_MAX = 10.0
P99_MS_MAX = 10.0
"""The target on a calm machine; the ordinary suite runs beside others and judges the median."""


def watermarks(cluster: Cluster, node: int) -> dict[int, list[tuple[int, int]]]:
    """Of each partition: watermark and time in ns, in the order in which the node learned them."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in events(read_table(cluster.data(node) / "traces")):
        if event.kind == EventKind.WATERMARK and event.topic == "traced":
            assert event.partition is not None
            assert event.high_watermark is not None
            found[event.partition].append((event.high_watermark, event.time_ns))
    return found


def test_fm26_followers_know_the_watermark_within_ten_ms(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    delays_ms = []
    with Cluster(tmp_path, "--trace", "files").running() as cluster:
        cluster.create("traced", 3)
        leaders = {p: cluster.leader("traced", p) for p in range(3)}
        with Load(cluster.bootstrap, "traced", 3) as load:
            load.wait_acked(200)
            time.sleep(20 if is_soak(request.config) else 2)
        cluster.stop(*NODES)
        known = {node: watermarks(cluster, node) for node in NODES}
    for partition, leader in leaders.items():
        for node in NODES:
            told = known[node][partition]
            assert [one for one, _ in told] == sorted({one for one, _ in told}), "fm22: moved back"
            for watermark, moved_ns in known[leader][partition] if node != leader else ():
                at = bisect.bisect_left(told, (watermark, 0))
                if at < len(told):
                    delays_ms.append((told[at][1] - moved_ns) / 1e6)
    delays_ms.sort()
    median, p99 = delays_ms[len(delays_ms) // 2], delays_ms[len(delays_ms) * 99 // 100]
    measured = f"{len(delays_ms)} watermarks: median {median:.2f} ms, p99 {p99:.2f} ms"
    assert median < MEDIAN_MS_MAX, measured
    if is_soak(request.config):
        assert p99 < P99_MS_MAX, measured
