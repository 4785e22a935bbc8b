"""How much of a figure is the client's own: `bench/client_limit.py [--rounds 9] [--scale 1]`.

On two cores a client takes most of the time itself, and no server can make it faster than it is.
So three servers are up and used in turn, in an order that changes: Kafka, Chronik, and a node that
does next to nothing (`no_work.py`). One line per kind of work: the median of records per second of
each, and how many times Kafka's the other two are. Producers ask for a report of every record.
"""

import argparse
import contextlib
import random
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench
from consume_in_turn import KINDS, Kind, Side, client, fill, read, running
from contestants import BENCH, Chronik, Kafka, MissingError
from processes import say
from trace_cost import LIMIT_SECONDS, PARTITIONS, new_topic

WARM_ROUNDS = 2
ALL_REPORTS = {"delivery.report.only.error": False}
Run = Callable[[], float]
"""Does the work once; records per second."""


class NoWork(Chronik):
    """A node that is the client's limit, for one of the two directions."""

    def __init__(self, direction: str) -> None:
        super().__init__("os")
        self.name = "no work"
        self.program = [sys.executable, str(BENCH / "no_work.py"), direction]


class Work(NamedTuple):
    """Records of a kind, sent with these acks, or read."""

    kind: Kind
    acks: str | None

    @property
    def name(self) -> str:
        what = "consume" if self.acks is None else f"produce, acks={self.acks},"
        return f"{what} {self.kind.name}"


def produce(side: Side, kind: Kind, acks: str) -> float:
    """Into a topic of its own."""
    said = client(
        bench.produce,
        bootstrap=side.bootstrap,
        topic=new_topic(side.bootstrap),
        records=kind.records,
        size=kind.size,
        acks=acks,
        limit=LIMIT_SECONDS,
        conf=kind.conf | ALL_REPORTS,
    )
    if said["acked"] != kind.records:
        raise RuntimeError(f"{side.name}: {kind.name}: {said}")
    return kind.records / (said["end"] - said["start"])


def consume(side: Side, topic: str, ends: dict[int, int]) -> float:
    return read(side, topic, ends).records_per_s


def runs(work: Work, sides: list[Side]) -> dict[str, Run]:
    """What to do on each side; a topic to be read is filled once."""
    kind, acks = work
    if acks is None:
        return {side.name: partial(consume, side, *fill(side, kind)) for side in sides}
    return {side.name: partial(produce, side, kind, acks) for side in sides}


def compare(work: Work, sides: list[Side], rounds: int) -> None:
    """Prints one line."""
    todo = runs(work, sides)
    found: dict[str, list[float]] = {name: [] for name in todo}
    for number in range(WARM_ROUNDS + rounds):
        for name in random.sample(list(todo), len(todo)):
            speed = todo[name]()
            if number >= WARM_ROUNDS:
                found[name].append(speed)
    kafka, *others = (statistics.median(speeds) for speeds in found.values())
    told = " ".join(f"{speed:>12,.0f} {speed / kafka:>5.2f}" for speed in others)
    say(f"{work.name:42} {kafka:>12,.0f} {told}")


def measure(works: list[Work], direction: str, rounds: int) -> None:
    with contextlib.ExitStack() as stack:
        servers = (Kafka(), Chronik("os"), NoWork(direction))
        sides = [stack.enter_context(running(one)) for one in servers]
        for work in works:
            compare(work, sides, rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scale", type=float, default=1, help="factor on all counts of records")
    asked = parser.parse_args()
    if asked.rounds < 1:
        parser.error("--rounds: at least 1")
    kinds = [one._replace(records=max(PARTITIONS, int(one.records * asked.scale))) for one in KINDS]
    say(f"{asked.rounds} rounds after {WARM_ROUNDS}, records/s, and times Kafka's")
    say(f"{'':42} {'kafka':>12} {'chronik os':>12} {'':>5} {'no work':>12}")
    try:
        consumed = [Work(kind, None) for kind in kinds]
        measure(consumed, "fetch", asked.rounds)
        produced = [Work(kind, acks) for kind in kinds for acks in ("1", "all")]
        measure(produced, "produce", asked.rounds)
    except MissingError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
