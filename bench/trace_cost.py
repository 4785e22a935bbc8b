"""What traces cost: `python bench/trace_cost.py [--rounds 8] [--durability os] [--trace files]`.

Two nodes are up, one with traces and one without, and the same work is given to them in turn, in
small portions, the order changing from round to round: whatever else the machine does hits both.
One line per kind of work: the node's processor seconds per GB of record values and the records per
second, without and with traces, and the median over the rounds of with / without.
"""

import argparse
import contextlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from contestants import Chronik
from processes import say, wait_for_port

PARTITIONS, LIMIT_SECONDS, LOSS_MAX = 6, 60, 0.05
SMALL_BATCHES = {"batch.num.messages": 200}


class Side(NamedTuple):
    """One of the two nodes."""

    name: str
    bootstrap: str
    pid: int


class Cost(NamedTuple):
    """Of one portion of work."""

    cpu_s_per_gb: float
    records_per_s: float


class Work(NamedTuple):
    """Records of this size, sent or read over so many connections at once."""

    name: str
    records: int
    size: int
    connections: int = 1
    consumes: bool = False
    conf: dict[str, Any] = {}  # noqa: RUF012 - never changed


WORKS = (
    Work("produce 100 B", 400_000, 100),
    Work("produce 1 KiB", 200_000, 1024),
    Work("produce 1 KiB, 8 connections", 200_000, 1024, connections=8),
    Work("produce 100 B, batches of 200", 200_000, 100, conf=SMALL_BATCHES),
    Work("consume 100 B", 1_000_000, 100, consumes=True),
    Work("consume 1 KiB", 400_000, 1024, consumes=True),
    Work("consume 1 KiB, 8 connections", 100_000, 1024, connections=8, consumes=True),
)


def cpu_seconds(pid: int) -> float:
    """As `processes.cpu_seconds`, to the nanosecond: portions are short. Ended threads are gone."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def at_once(count: int, work: Callable[[], object]) -> None:
    """So many of it in threads, until all are done."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def new_topic(bootstrap: str) -> str:
    name = f"t{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
    return name


def log_ends(bootstrap: str, topic: str) -> dict[int, int]:
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = {one.partition: client.get_watermark_offsets(one, LIMIT_SECONDS)[1] for one in parts}
    client.close()
    return ends


def produce(side: Side, topic: str, work: Work, connections: int) -> None:
    share = work.records // connections

    def one() -> None:
        said = bench.produce(side.bootstrap, topic, share, work.size, "1", LIMIT_SECONDS, work.conf)
        if said["acked"] != share:
            raise RuntimeError(f"{side.name}: {said}")

    at_once(connections, one)


def consume(side: Side, topic: str, work: Work, ends: dict[int, int]) -> None:
    def one() -> None:
        said = bench.consume(side.bootstrap, topic, ends, LIMIT_SECONDS)
        if said["received"] != sum(ends.values()):
            raise RuntimeError(f"{side.name}: {said}")

    at_once(work.connections, one)


def prepare(side: Side, work: Work) -> Callable[[], None]:
    """What is to be measured: records are sent to one topic, or read from one that is filled."""
    topic = new_topic(side.bootstrap)
    if not work.consumes:
        return lambda: produce(side, topic, work, work.connections)
    produce(side, topic, work, 1)
    ends = log_ends(side.bootstrap, topic)
    return lambda: consume(side, topic, work, ends)


def measure(side: Side, work: Work, act: Callable[[], None]) -> Cost:
    """One portion."""
    cpu, began = cpu_seconds(side.pid), time.perf_counter()
    act()
    seconds, cpu = time.perf_counter() - began, cpu_seconds(side.pid) - cpu
    records = work.records * (work.connections if work.consumes else 1)
    return Cost(cpu / (records * work.size / 1e9), records / seconds)


def compare(without: Side, with_: Side, rounds: int, works: tuple[Work, ...] = WORKS) -> bool:
    """Prints a line per work; whether no loss is beyond the bound."""
    say(f"{'':32} CPU s/GB {'':11} {'':6}  records/s")
    say(f"{'':32} {without.name:>9} {with_.name:>9} ratio  {without.name:>9} {with_.name:>9} ratio")
    kept = True
    for work in works:
        found: dict[Side, list[Cost]] = {without: [], with_: []}
        acts = {side: prepare(side, work) for side in found}
        for number in range(rounds + 1):
            sides = (without, with_) if number % 2 else (with_, without)
            for side in sides:
                cost = measure(side, work, acts[side])
                if number:  # the first round warms up
                    found[side].append(cost)
        kept = show(work, *found.values()) and kept
    return kept


def show(work: Work, without: list[Cost], with_: list[Cost]) -> bool:
    """One line, and whether the loss is within the bound."""
    words, ratios = [f"{work.name:32}"], []
    for index in (0, 1):
        pairs = list(
            zip([cost[index] for cost in without], [cost[index] for cost in with_], strict=True)
        )
        ratios.append(statistics.median(b / a for a, b in pairs))
        a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
        style = ".3f" if index == 0 else ",.0f"
        words.append(f"{a:>9{style}} {b:>9{style}} {ratios[-1]:.3f} ")
    kept = ratios[0] <= 1 + LOSS_MAX and ratios[1] >= 1 - LOSS_MAX
    say(" ".join(words) + ("" if kept else " BEYOND 5%"))
    return kept


@contextlib.contextmanager
def running(name: str, durability: str, *options: str) -> Iterator[Side]:
    """A node on fresh data."""
    with Chronik(durability, *options).running() as (bootstrap, pids):
        wait_for_port(int(bootstrap.rpartition(":")[2]))
        yield Side(name, bootstrap, pids[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--durability", choices=("os", "fsync"), default="os")
    parser.add_argument("--trace", choices=("files", "memory"), default="files")
    asked = parser.parse_args()
    with (
        running("off", asked.durability, "--trace", "off") as without,
        running(asked.trace, asked.durability, "--trace", asked.trace) as with_,
    ):
        return 0 if compare(without, with_, asked.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
