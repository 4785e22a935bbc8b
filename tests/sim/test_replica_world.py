"""A partition's replicas under faults: the sound ones hold, the planted bugs are found.

A longer run is `chronik simulate --world partition --seeds 1000`.
"""

import re

import pytest
from click.testing import CliRunner

from chronik.cli.simulate import command
from chronik.sim.replica_bugs import REPLICA_BUGS
from chronik.sim.replica_world import ReplicaReport, run


def explain(report: ReplicaReport) -> str:
    return "\n".join([report.finding, *report.trace, report.command])


@pytest.mark.parametrize(
    ("nodes", "first"), [(3, 0), pytest.param(3, 20, marks=pytest.mark.sweep), (5, 0)]
)
def test_fm22_no_seed_moves_a_watermark_back_or_loses_what_was_acked(
    nodes: int, first: int
) -> None:
    for seed in range(first, first + (20 if nodes == 3 else 10)):
        report = run(seed, nodes, steps=2_000)
        assert report.ok, explain(report)


def test_seeds_that_once_found_something() -> None:
    # A leader that lacked a whole epoch had a follower in the ISR cut what was committed.
    report = run(5_845, 5)
    assert report.ok, explain(report)


def test_seeds_do_something() -> None:
    reports = [run(seed, 3, steps=2_000) for seed in range(100, 110)]
    assert sum(report.acked for report in reports) > 100
    assert sum(report.restarts for report in reports) > 60
    assert sum(report.epochs for report in reports) > 30


def test_the_same_seed_gives_the_same_run() -> None:
    assert run(7, 3, steps=1_500) == run(7, 3, steps=1_500)


FOUND_AS = {
    "watermark-early": "in the ISR",
    "ack-before-sync": "in the ISR",
    "keep-divergence": "another record|logs differ|committed records",
    "isr-not-maximal": "committed records|in the ISR|another record",
    "leader-counts-unsynced": "in the ISR",
    "same-epoch-after-crash": r"than epoch \d+ had there",
    "offsets-used-again": r"than epoch \d+ had there",
    "sync-without-bytes": "committed records|in the ISR|another record",
}
"""The words of the finding, by the planted bug."""


@pytest.mark.parametrize("bug", FOUND_AS)
def test_a_planted_bug_is_found(bug: str) -> None:
    reports = (run(seed, bugs=(bug,)) for seed in range(60))
    found = next(report for report in reports if not report.ok)
    assert re.search(FOUND_AS[bug], found.finding), explain(found)
    assert run(found.seed).ok


def test_every_planted_bug_is_tried() -> None:
    assert set(REPLICA_BUGS) == set(FOUND_AS)


def test_the_command_says_what_was_found_and_how_to_repeat_it() -> None:
    words = ["--world", "partition", "--seeds", "5", "--bug", "watermark-early"]
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 1
    repeat = re.search(r"repeat it with: chronik (simulate .*)", result.output)
    assert repeat is not None
    again = CliRunner().invoke(command, repeat[1].split()[1:])
    assert again.output.splitlines()[0] == result.output.splitlines()[0]


def test_a_bug_of_the_other_world_is_refused() -> None:
    result = CliRunner().invoke(command, ["--world", "partition", "--bug", "vote-not-synced"])
    assert result.exit_code == 2
    assert "watermark-early" in result.output
