"""Does the event loop feel a compaction? `python bench/compaction.py [--megabytes 1000]`.

Fills one partition with repeated keys, starts the node anew (its stall counters begin at nothing),
turns compaction on, produces and fetches meanwhile, and reads what the node says of itself.
"""

import argparse
import re
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from contestants import HOST, Chronik
from processes import anonymous_bytes, cpu_seconds, say, wait_for_port

from chronik.lab.cluster import free_ports

TOPIC = "compacted"
KEYS = 200_000
SEGMENTS = 10
RECORDS_PER_SECOND = 500
SECONDS_MAX = 280.0
CLEANED = "chronik_compactions_total"


def fill(bootstrap: str, size: int, value_bytes: int, codec: str) -> int:
    """Records until their values make `size` bytes; how many."""
    settings = {"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 20}
    producer = Producer({**settings, "compression.type": codec, "batch.size": 500_000})
    topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(size // SEGMENTS)})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[TOPIC].result()
    value, count = b"v" * value_bytes, size // value_bytes
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, key=b"key-%d" % (number * 7919 % KEYS))
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise RuntimeError("not everything was acknowledged")
    return count


def compact(bootstrap: str) -> None:
    """Turns compaction on."""
    wanted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()


def metric(http_port: int, name: str) -> float:
    """One value of the node's metrics page."""
    with urllib.request.urlopen(f"http://{HOST}:{http_port}/metrics", timeout=10) as page:
        found = re.search(rf"^{name} (\S+)$", page.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


class Load:
    """An even pace of records on another topic, and how long each took to be acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 0, "log_level": 0}
        )
        self.took_ms: list[float] = []
        self.failed = 0

    def send(self) -> None:
        """One record."""
        sent = time.perf_counter()

        def told(error: object, _: Message) -> None:
            self.failed += error is not None
            self.took_ms.append((time.perf_counter() - sent) * 1e3)

        self._producer.produce("beside", b"x" * 100, on_delivery=told)

    def run_until_cleaned(self, http_port: int) -> float:
        """Seconds until the cleaner has finished."""
        began, number = time.perf_counter(), 0
        while time.perf_counter() - began < SECONDS_MAX:
            number += 1
            self.send()
            while (early := began + number / RECORDS_PER_SECOND - time.perf_counter()) > 0:
                self._producer.poll(early)
            if not number % RECORDS_PER_SECOND and metric(http_port, CLEANED) > 0:
                break
        self._producer.flush(10)
        return time.perf_counter() - began


def read_back(bootstrap: str) -> int:
    """Records that are left."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    partition = TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=10)
    consumer.assign([partition])
    found, last = 0, -1
    while last < end - 1:
        messages = consumer.consume(10_000, timeout=5)
        if not messages:
            break
        found += len(messages)
        last = messages[-1].offset() or last
    consumer.close()
    return found


def main() -> None:
    """Prints what happened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--codec", default="none")
    parser.add_argument(
        "--keep", type=Path, help="a directory to fill, or filled by an earlier run"
    )
    asked = parser.parse_args()
    http_port = free_ports(1)
    node = Chronik("os", "--http-port", str(http_port))
    with tempfile.TemporaryDirectory(dir=node.work_directory()) as made:
        directory = asked.keep or Path(made)
        if not (directory / "data").exists():
            directory.mkdir(exist_ok=True)
            with node.started(directory) as (bootstrap, _):
                wait_for_port(int(bootstrap.rpartition(":")[2]))
                count = fill(bootstrap, asked.megabytes * 10**6, asked.value_bytes, asked.codec)
                say(f"filled {count} records of {asked.value_bytes} bytes, codec {asked.codec}")
        with node.started(directory) as (bootstrap, pids):
            wait_for_port(int(bootstrap.rpartition(":")[2]))
            measure(bootstrap, pids, http_port)


def measure(bootstrap: str, pids: list[int], http_port: int) -> None:
    """One compaction under load."""
    load, cpu = Load(bootstrap), cpu_seconds(pids)
    compact(bootstrap)
    took = load.run_until_cleaned(http_port)
    pause_ms = metric(http_port, "chronik_event_loop_pause_seconds_max") * 1e3
    stalls = metric(http_port, "chronik_event_loop_stall_seconds_count")
    cuts = statistics.quantiles(load.took_ms, n=100)
    say(
        f"compacted in {took:.1f} s, {cpu_seconds(pids) - cpu:.1f} s of CPU, "
        f"{anonymous_bytes(pids) / 2**20:.0f} MiB; {read_back(bootstrap)} records are left\n"
        f"longest pause of the event loop {pause_ms:.1f} ms, {stalls:.0f} stalls above 50 ms\n"
        f"produce beside it: {len(load.took_ms)} acks, p50 {cuts[49]:.2f} ms, "
        f"p99 {cuts[98]:.2f} ms, max {max(load.took_ms):.1f} ms, {load.failed} failed"
    )


if __name__ == "__main__":
    main()
