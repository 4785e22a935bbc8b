"""The simulated network and clocks."""

from random import Random

from chronik.sim.clock import Clock, DriftingTimer
from chronik.sim.network import Network, NetworkFaults

PERFECT = NetworkFaults(loss_percent=0, duplicate_percent=0, straggler_percent=0)


def test_events_happen_in_the_order_of_their_time() -> None:
    clock = Clock()
    seen: list[str] = []
    clock.after(20, lambda: seen.append("c"))
    clock.after(10, lambda: seen.append("a"))
    clock.after(10, lambda: seen.append("b"))
    while clock.step():
        pass
    assert (seen, clock.now_us) == (["a", "b", "c"], 20)


def test_drift_stays_in_its_bounds() -> None:
    periods = [DriftingTimer(Random(seed), 1_000, 30).next_us() for seed in range(200)]
    assert min(periods) >= 700
    assert max(periods) <= 1_300 + 130


def test_a_perfect_network_delivers_once() -> None:
    network = Network(Random(1), PERFECT)
    assert all(len(network.arrivals_us(0, 1)) == 1 for _ in range(100))


def test_a_cut_may_be_one_way() -> None:
    network = Network(Random(1), PERFECT)
    network.cut([0], [1, 2], one_way=True)
    assert network.arrivals_us(0, 1) == []
    assert network.arrivals_us(1, 0) != []
    network.cut([1], [2])
    assert network.is_cut(2, 1)
    network.heal()
    assert network.arrivals_us(0, 1) != []


def test_a_bad_network_loses_and_repeats() -> None:
    network = Network(Random(1), NetworkFaults(loss_percent=30, duplicate_percent=30))
    copies = [len(network.arrivals_us(0, 1)) for _ in range(300)]
    assert {0, 1, 2} == set(copies)
