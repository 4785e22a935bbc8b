"""Real clusters with a defect each: the audit names it, and is silent where there is none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chronik.lab.catalogue import BY_NAME, CATALOGUE
from chronik.lab.cluster import HOST, LabCluster, free_ports
from chronik.lab.run import Outcome, run_defect

SHORT = ("offset-race", "duplicate-on-retry", "error-as-success", "lost-fsync", "bit-flip")
"""One node each, a few seconds; the others are for `--soak`."""
LONG = tuple(one.name for one in CATALOGUE if one.name not in SHORT)

pytestmark = pytest.mark.integration


def told(outcome: Outcome) -> str:
    """What a failed test shows."""
    found = [f"{one.name} ({one.statement})" for one in outcome.diagnosis.causes[:5]]
    return f"{outcome.to_dict()} causes: {found}"


def test_with_no_defect_the_audit_has_nothing_to_say(tmp_path: Path) -> None:
    outcome = run_defect(BY_NAME["none"], tmp_path)
    assert outcome.named, told(outcome)
    assert (outcome.missing, outcome.anomalies, outcome.cause) == (0, [], "")


@pytest.mark.parametrize("name", [*SHORT, *(pytest.param(n, marks=pytest.mark.soak) for n in LONG)])
def test_the_defect_is_named(name: str, tmp_path: Path) -> None:
    outcome = run_defect(BY_NAME[name], tmp_path)
    assert outcome.named, told(outcome)


@pytest.mark.parametrize(
    "name",
    [
        "lost-fsync",
        *(pytest.param(n, marks=pytest.mark.soak) for n in BY_NAME if n != "lost-fsync"),
    ],
)
def test_the_same_run_without_the_defect_is_clean(name: str, tmp_path: Path) -> None:
    """So that it is the defect which is found, and not what happens around it."""
    outcome = run_defect(BY_NAME[name], tmp_path, installed=False)
    assert outcome.named, told(outcome)


def test_the_command_prints_json_and_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chronik", "lab", "run", "watermark-stored", "--json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr + done.stdout
    (line,) = json.loads(done.stdout)
    assert line["defect"] == "watermark-stored"
    assert line["named"] is True
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_ends_with_its_context_and_frees_its_ports(tmp_path: Path) -> None:
    with LabCluster(tmp_path) as cluster:
        port = int(cluster.bootstrap.rpartition(":")[2])
        (child,) = cluster._children.values()
        assert child.poll() is None
    assert child.poll() is not None
    assert free_ports(1)
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))


def test_a_node_stops_when_the_lab_is_gone(tmp_path: Path) -> None:
    with LabCluster(tmp_path) as cluster:
        (child,) = cluster._children.values()
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(20) == 0
