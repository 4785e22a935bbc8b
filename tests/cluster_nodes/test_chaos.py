"""Real processes, real clients, faults drawn from a seed: nothing acknowledged is lost.

Four rounds in the ordinary suite, fifty with `make soak ARGS=chaos`; CHRONIK_CHAOS="seed rounds" or
"seed fault fault ..." runs others.
"""

import os
from collections import Counter
from pathlib import Path

import pytest
from tests.cluster_nodes.chaos import ACTS, Chaos, draw
from tests.cluster_nodes.kit import Cluster
from tests.rounds import Rounds

pytestmark = pytest.mark.integration
ROUNDS_MAX, ROUNDS_PER_PART = 50, 5
ROUNDS = ["kill_leader", "one_way", "full_disk_and_kill", "wipe"]
PAUSE_S, LONG_PAUSE_S = 3.0, 30.0
RECOVERY_SECONDS_MAX = 3.0
UNAFFECTED_SECONDS_MAX = 1.0
BUSY = 3
"""The ordinary suite runs beside others: its limits are so many times as wide."""


def play(directory: Path, seed: int, names: list[str], pause_s: float, slack: float = BUSY) -> None:
    rounds = Rounds("chaos", len(names), seed)
    durability = "fsync" if seed % 2 else "os"
    with (
        Cluster(directory, durability=durability, proxied=True, faulty=True).running() as cluster,
        Chaos(cluster, seed, pause_s) as chaos,
    ):
        for name in names:
            chaos.round(name)
            acked = sum(len(load.acked) for load in chaos.loads)
            done = "; ".join([f"{name}, {durability}", *chaos.did])
            rounds.told(done, acked=acked, read=chaos.read)
    chaos.note(chaos.times())
    rounds.summary(times=f"({chaos.times()})")
    assert max(chaos.recovery_s, default=0) < slack * RECOVERY_SECONDS_MAX, chaos.times()
    assert max(chaos.beside_s, default=0) < slack * UNAFFECTED_SECONDS_MAX, chaos.times()


def test_four_rounds_of_chaos_lose_nothing(tmp_path: Path) -> None:
    play(tmp_path, 1, ROUNDS, PAUSE_S)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(ROUNDS_MAX // ROUNDS_PER_PART))
def test_fifty_rounds_of_chaos_lose_nothing(tmp_path: Path, part: int) -> None:
    first = part * ROUNDS_PER_PART
    names = draw(0, ROUNDS_MAX)[first : first + ROUNDS_PER_PART]
    play(tmp_path, part, names, LONG_PAUSE_S, slack=float(os.environ.get("CHRONIK_SLACK", "1")))


def test_fifty_rounds_hold_every_kind_of_fault_at_least_twice() -> None:
    counts = Counter(draw(0, ROUNDS_MAX))
    assert counts.keys() == set(ACTS)
    assert min(counts.values()) >= 2


@pytest.mark.skipif("CHRONIK_CHAOS" not in os.environ, reason="runs what CHRONIK_CHAOS says")
@pytest.mark.timeout(1200)
def test_chaos_as_asked_for(tmp_path: Path) -> None:
    seed, *words = os.environ["CHRONIK_CHAOS"].split()
    rounds = draw(int(seed), int(words[0])) if words[0].isdigit() else words
    play(tmp_path, int(seed), rounds, PAUSE_S)
