"""What the ledger costs: a producer with plain delivery callbacks against the same with a ledger.

    python bench/ledger_overhead.py [--rounds 30] [--messages 100000] [--bootstrap HOST:PORT]

Both make the same records and send them with the same client settings; the one counts its delivery
callbacks, the other writes every begin and every outcome down. Runs alternate, and the least time
of each is compared: other processes can only add. Without --bootstrap a Chronik node is started.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka

sys.path.insert(0, str(Path(__file__).resolve().parent))

from contestants import Chronik

from chronik.audit.client_confluent import Cluster, Producer, producer_config
from chronik.audit.clients import Outgoing, ProducerSettings
from chronik.audit.ledger import LedgerWriter, read_table
from chronik.audit.payload import PayloadWriter
from chronik.audit.send_log import SendLog

TOPIC, PARTITIONS, SIZE, CHUNK = "ledger-overhead", 3, 100, 64
SENDS_OF_THE_PROMISE = 100_000_000


class Cost(NamedTuple):
    """Of one run: passed, used by all threads, used by the thread that sends."""

    wall_s: float
    cpu_s: float
    thread_s: float


class Stopwatch:
    """From its making to `cost()`."""

    def __init__(self) -> None:
        self._began = (time.perf_counter(), time.process_time(), time.thread_time())

    def cost(self) -> Cost:
        now = (time.perf_counter(), time.process_time(), time.thread_time())
        return Cost(*(end - begin for begin, end in zip(self._began, now, strict=True)))


def plain(settings: ProducerSettings, messages: int) -> Cost:
    """Delivery callbacks that only count."""
    done = {True: 0, False: 0}

    def delivered(error: Any, _: Any) -> None:
        done[error is None] += 1

    client: Any = confluent_kafka.Producer(
        producer_config(settings) | {"on_delivery": delivered}  # as the other does
    )
    client.list_topics(TOPIC, timeout=10)
    payloads = PayloadWriter(1, 0, SIZE)
    watch = Stopwatch()
    produce = client.produce
    for first in range(0, messages, CHUNK):
        chunk = range(first, min(messages, first + CHUNK))
        records = [Outgoing(n, n % PARTITIONS, None, payloads.write(n)[0]) for n in chunk]
        for _, partition, key, value in records:
            while True:
                try:
                    produce(TOPIC, value, key, partition)
                    break
                except BufferError:
                    client.poll(0.05)
        client.poll(0)
    client.flush()
    cost = watch.cost()
    assert done == {True: messages, False: 0}, done
    return cost


def ledgered(settings: ProducerSettings, messages: int, path: Path) -> Cost:
    """The same, as `chronik verify` does it."""
    path.unlink(missing_ok=True)
    with LedgerWriter(path, "run", "p0") as ledger:
        log = SendLog(ledger, TOPIC)
        client = Producer(settings, log)
        payloads = PayloadWriter(1, 0, SIZE)
        watch = Stopwatch()
        for first in range(0, messages, CHUNK):
            chunk = range(first, min(messages, first + CHUNK))
            values = [payloads.write(n) for n in chunk]
            log.begin(first, [checksum for _, checksum in values])
            numbered = zip(chunk, values, strict=True)
            client.send([Outgoing(n, n % PARTITIONS, None, value) for n, (value, _) in numbered])
            client.drain()
        left = client.close(60.0)
        log.close()
        cost = watch.cost()
    assert not left, f"{left} sends have no outcome"
    return cost


@contextlib.contextmanager
def bootstrap_of(given: str) -> Iterator[str]:
    if given:
        yield given
        return
    with Chronik("os").running() as (address, _):
        yield address


def show(name: str, plain_s: float, ledger_s: float, messages: int) -> None:
    per = 1e6 / messages
    said = f"plain {plain_s * per:.2f} us, ledger {ledger_s * per:.2f} us per send"
    sys.stdout.write(f"{name:12} {said}: {ledger_s / plain_s - 1:+.0%}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--bootstrap", default="")
    asked = parser.parse_args()
    with bootstrap_of(asked.bootstrap) as address, tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(address)
        with contextlib.suppress(Exception):
            cluster.delete_topic(TOPIC)
        cluster.create_topic(TOPIC, PARTITIONS, 1)
        settings = ProducerSettings(address, TOPIC, "1")
        path = Path(folder) / "p0.ledger"
        pairs = [
            (plain(settings, asked.messages), ledgered(settings, asked.messages, path))
            for _ in range(asked.rounds)
        ]
        for what, name in enumerate(("wall", "cpu", "python")):
            without, with_ledger = (min(run[who][what] for run in pairs) for who in (0, 1))
            show(name, without, with_ledger, asked.messages)
        assert read_table(path).num_rows >= asked.messages
        size = path.stat().st_size / asked.messages
    total = size * SENDS_OF_THE_PROMISE / 1e9
    sys.stdout.write(
        f"disk         {size:.2f} bytes per send: 100 million sends are {total:.2f} GB\n"
    )


if __name__ == "__main__":
    main()
