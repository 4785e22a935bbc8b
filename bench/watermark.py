"""How soon all replicas know a watermark: `python bench/watermark.py [--seconds 10] [--rate 500]`.

Three nodes with traces, records with acks=all at a steady rate over three partitions; then the
nodes stop and their traces are compared: from the leader's move to each follower's.
"""

import argparse
import signal
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from contestants import HOST, Chronik
from failover import NODES, Connection, Nodes, create, wait_for_isr
from processes import say

from chronik.audit.watermark_spread import spread_of

PARTITIONS = 3
STOP_SECONDS_MAX = 60


def load(bootstrap: str, seconds: float, rate: int) -> int:
    """Records acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    count = int(seconds * rate)
    began = time.perf_counter()
    for number in range(count):
        producer.produce("topic-0", b"x" * 100, partition=number % PARTITIONS)
        producer.poll(0)
        ahead = began + number / rate - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
    if producer.flush(60):
        raise RuntimeError("not everything was acknowledged")
    return count


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--durability", choices=("os", "fsync"), default="os")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Chronik("os").work_directory()) as made:
        cluster = Nodes(Path(made), asked.durability, "--trace", "files")
        with cluster.running():
            connection = Connection(cluster.port(1))
            create(connection, PARTITIONS)
            wait_for_isr(connection, PARTITIONS)
            connection.close()
            bootstrap = ",".join(f"{HOST}:{cluster.port(node)}" for node in NODES)
            count = load(bootstrap, asked.seconds, asked.rate)
            for process in cluster.processes.values():
                process.send_signal(signal.SIGTERM)
            for process in cluster.processes.values():
                process.wait(STOP_SECONDS_MAX)
        found = spread_of([cluster.data(node) / "traces" for node in NODES])
    say(f"{count} records, {found.moves} moves of watermarks; known on the followers after")
    for row in found.rows():
        say(" ".join(f"{name}={value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
