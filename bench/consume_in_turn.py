"""Consuming, beside Kafka: `bench/consume_in_turn.py [--rounds 10] [--scale 1] [--durability os]`.

A consumer is mostly its own limit, and what the machine does meanwhile is more than the servers
differ by. So Kafka and Chronik are up together, hold the same topics, and are read in turn, the
order changing from round to round, after rounds that warm both up: whatever else happens hits both.
One line per kind of record: the median of records per second of each, the median over the rounds of
Chronik / Kafka, and the servers' processor seconds per GB of record values. Kafka is found, or
installed, as `bench/compare.py` does it (KAFKA_DIR names another place).
"""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench
from contestants import Chronik, Contestant, Kafka, MissingError
from processes import cpu_seconds, say, wait_for_port
from trace_cost import LIMIT_SECONDS, PARTITIONS, log_ends, new_topic

CLIENT_SECONDS_MAX = LIMIT_SECONDS + 30


class Kind(NamedTuple):
    """So many records of a size, in batches as they come or smaller."""

    name: str
    records: int
    size: int
    conf: dict[str, Any] = {}  # noqa: RUF012 - never changed


KINDS = (
    Kind("100 B", 1_000_000, 100),
    Kind("100 B, batches of 200", 500_000, 100, {"batch.num.messages": 200}),
    Kind("1 KiB", 300_000, 1024),
)


class Side(NamedTuple):
    """One of the two servers."""

    name: str
    bootstrap: str
    pids: list[int]


class Portion(NamedTuple):
    """One topic read once."""

    records_per_s: float
    cpu_s: float


def client(work: Any, **arguments: Any) -> dict[str, Any]:
    """What a client in a process of its own has to say; an error where it was not done in time."""
    (said,) = bench.collect([bench.spawn(work, **arguments)], CLIENT_SECONDS_MAX)
    if "error" in said:
        raise RuntimeError(f"{arguments['bootstrap']}: {said['error']}")
    return said


def fill(side: Side, kind: Kind) -> tuple[str, dict[int, int]]:
    """A topic with all records of the kind, and where its partitions end."""
    topic = new_topic(side.bootstrap)
    said = client(
        bench.produce,
        bootstrap=side.bootstrap,
        topic=topic,
        records=kind.records,
        size=kind.size,
        acks="all",
        limit=LIMIT_SECONDS,
        conf=kind.conf,
    )
    ends = log_ends(side.bootstrap, topic)
    if not said["acked"] == sum(ends.values()) == kind.records:
        raise RuntimeError(f"{side.name}: {kind.name}: {said}, and the log has {ends}")
    return topic, ends


def read(side: Side, topic: str, ends: dict[int, int]) -> Portion:
    """From the first record to the last; starting and ending a client is not measured."""
    cpu = cpu_seconds(side.pids)
    said = client(
        bench.consume, bootstrap=side.bootstrap, topic=topic, ends=ends, limit=LIMIT_SECONDS
    )
    records = sum(ends.values())
    if said["received"] != records:
        raise RuntimeError(f"{side.name}: {said['received']} of {records} records")
    return Portion(records / (said["end"] - said["start"]), cpu_seconds(side.pids) - cpu)


def compare(kafka: Side, chronik: Side, kind: Kind, rounds: int, warm: int) -> None:
    """Prints one line."""
    topics = {side.name: fill(side, kind) for side in (kafka, chronik)}
    found: dict[str, list[Portion]] = {name: [] for name in topics}
    for number in range(warm + rounds):
        for side in (kafka, chronik) if number % 2 else (chronik, kafka):
            portion = read(side, *topics[side.name])
            if number >= warm:
                found[side.name].append(portion)
    show(kind, *found.values())


def show(kind: Kind, kafka: list[Portion], chronik: list[Portion]) -> None:
    pairs = list(zip(kafka, chronik, strict=True))
    ratio = statistics.median(b.records_per_s / a.records_per_s for a, b in pairs)
    speeds = [statistics.median(one.records_per_s for one in side) for side in (kafka, chronik)]
    gigabytes = len(pairs) * kind.records * kind.size / 1e9
    cpu = [sum(one.cpu_s for one in side) / gigabytes for side in (kafka, chronik)]
    say(
        f"{kind.name:22} {speeds[0]:>12,.0f} {speeds[1]:>14,.0f} {ratio:>6.2f}"
        f" {cpu[0]:>9.2f} {cpu[1]:>14.2f}"
    )


@contextlib.contextmanager
def running(contestant: Contestant) -> Iterator[Side]:
    """A server with empty data that listens."""
    contestant.prepare()
    with contestant.running() as (bootstrap, pids):
        wait_for_port(int(bootstrap.rpartition(":")[2]))
        yield Side(contestant.name, bootstrap, pids)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--warm", type=int, default=3, help="rounds before those (default 3)")
    parser.add_argument("--scale", type=float, default=1, help="factor on all counts of records")
    parser.add_argument("--durability", choices=("os", "fsync"), default="os", help="of Chronik")
    asked = parser.parse_args()
    try:
        with running(Kafka()) as kafka, running(Chronik(asked.durability)) as chronik:
            say(f"{asked.rounds} rounds after {asked.warm}, {PARTITIONS} partitions, one consumer")
            say(f"{'':22} {'records/s':>12} {'':>14} {'':>6} {'CPU s/GB':>9}")
            say(
                f"{'':22} {kafka.name:>12} {chronik.name:>14} {'ratio':>6}"
                f" {kafka.name:>9} {chronik.name:>14}"
            )
            for kind in KINDS:
                records = max(PARTITIONS, int(kind.records * asked.scale))
                compare(kafka, chronik, kind._replace(records=records), asked.rounds, asked.warm)
    except MissingError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
