"""What many partitions cost: `python bench/many_partitions.py [--nodes 1|3] [--partitions N]`.

One record in each partition, so that each has a directory, a segment and checkpoints. One node: a
clean stop and start, and a start after kill -9. Three nodes: idle, then kill -9 of one of them, see
`failover.py`. Memory is the process's own, without mapped files.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import failover
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from contestants import BENCH, HOST, Chronik
from processes import anonymous_bytes, cpu_seconds, say, wait_for_port

from chronik.lab.cluster import free_ports

PARTITIONS_PER_TOPIC = 100
IDLE_SECONDS = 5
STOP_SECONDS_MAX = 120


def launch(directory: Path, port: int, durability: str) -> subprocess.Popen[bytes]:
    """A node on data that may be there already."""
    command = [sys.executable, "-m", "chronik", "up", "--durability", durability]
    command += ["--port", str(port), "--data", str(directory / "data")]
    with (directory / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=BENCH.parent)


def fill(bootstrap: str, partitions: int) -> tuple[float, float]:
    """Seconds to create the topics, and to produce one record to each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 5})
    names = [f"topic-{number}" for number in range(partitions // PARTITIONS_PER_TOPIC)]
    began = time.perf_counter()
    asked = [NewTopic(name, PARTITIONS_PER_TOPIC, 1) for name in names]
    for done in admin.create_topics(asked, request_timeout=120).values():
        done.result()
    created = time.perf_counter()
    for name in names:
        for partition in range(PARTITIONS_PER_TOPIC):
            producer.produce(name, b"one record", partition=partition)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not everything was acknowledged")
    return created - began, time.perf_counter() - created


def idle_share(pid: int) -> float:
    """The share of a core that the node takes while nobody asks anything."""
    before = cpu_seconds([pid])
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds([pid]) - before) / IDLE_SECONDS


def tell(what: str, seconds: float, pid: int) -> None:
    """One line of the result."""
    mib = anonymous_bytes([pid]) / 2**20
    share = idle_share(pid)
    say(f"{what:<22} {seconds:6.2f} s, {mib:5.0f} MiB, idle {share:.1%} of a core")


def one_node(asked: argparse.Namespace) -> None:
    """Prints a few lines."""
    port = free_ports(1)
    with tempfile.TemporaryDirectory(dir=Chronik("os").work_directory()) as made:
        directory = Path(made)
        node = launch(directory, port, asked.durability)
        try:
            tell("empty, start", wait_for_port(port), node.pid)
            created, produced = fill(f"{HOST}:{port}", asked.partitions)
            count = asked.partitions
            say(f"{count} partitions: created in {created:.2f} s, filled in {produced:.2f} s")
            tell("filled", 0, node.pid)
            began = time.perf_counter()
            node.send_signal(signal.SIGTERM)
            node.wait(STOP_SECONDS_MAX)
            say(f"{'clean stop':<22} {time.perf_counter() - began:6.2f} s")
            node = launch(directory, port, asked.durability)
            tell("start after clean stop", wait_for_port(port), node.pid)
            os.kill(node.pid, signal.SIGKILL)
            node.wait()
            node = launch(directory, port, asked.durability)
            tell("start after kill -9", wait_for_port(port), node.pid)
        finally:
            node.kill()
            node.wait()


def main() -> None:
    """One node or three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument("--partitions", type=int, help="10000 on one node, 3000 on three")
    parser.add_argument("--durability", choices=("os", "fsync"), default="os")
    parser.add_argument("--victim", choices=("broker", "controller"), default="broker")
    asked = parser.parse_args()
    asked.partitions = asked.partitions or (10_000 if asked.nodes == 1 else 3_000)
    if asked.nodes == 1:
        one_node(asked)
    else:
        failover.measure(asked.partitions, asked.durability, asked.victim)


if __name__ == "__main__":
    main()
