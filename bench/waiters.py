"""Whether an ack waits for those who wait: `python bench/waiters.py [--polls 0 1000 5000]`.

One connection produces with one request in flight; beside it long polls are open, one connection
each. `elsewhere`: on another topic, where nothing happens. `hungry`: on the same partition, for
more bytes than ever come. `tailing`: on the same partition, for any byte; each answered one asks
again, so every produce also feeds them all: the ack must not wait until that is done.
"""

import argparse
import contextlib
import multiprocessing
import resource
import selectors
import socket
import statistics
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING, cast

from contestants import Chronik
from idle import FETCH_VERSION, WAIT_MS, answer, connect, framed, latencies
from processes import cpu_seconds, say, wait_for_port

from chronik.wire.messages import create_topics, fetch

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

KINDS = ("elsewhere", "hungry", "tailing")
PRODUCES = {"elsewhere": 3_000, "hungry": 3_000, "tailing": 200}
WARM_UP, SETTLE_SECONDS = 500, 2
NEVER_BYTES = 1 << 30
WATERMARK_AT = slice(28, 36)
"""In an answer to a fetch of one partition of the topic `busy`."""


def poll(kind: str, offset: int) -> bytes:
    """A fetch that waits."""
    wanted = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = "quiet" if kind == "elsewhere" else "busy"
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=WAIT_MS,
        min_bytes=NEVER_BYTES if kind == "hungry" else 1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
    )
    return framed(request, FETCH_VERSION)


def tail(port: int, count: int, offset: int, ready: Event, answers: "Synchronized[int]") -> None:
    """Consumers in a process of their own: each reads its answer and asks for what comes next."""
    with selectors.DefaultSelector() as arrived:
        for _ in range(count):
            connection = connect(port)
            connection.sendall(poll("tailing", offset))
            arrived.register(connection, selectors.EVENT_READ)
        ready.set()
        while True:
            for key, _ in arrived.select():
                connection = cast("socket.socket", key.fileobj)
                found = answer(connection)
                answers.value += 1
                connection.sendall(poll("tailing", int.from_bytes(found[WATERMARK_AT], "big")))


@contextlib.contextmanager
def tailing(port: int, count: int, offset: int) -> Iterator["Synchronized[int]"]:
    """Runs `tail`; the number of answers that its consumers have got so far."""
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Event(), context.Value("q", 0)
    process = context.Process(target=tail, args=(port, count, offset, ready, answers), daemon=True)
    process.start()
    try:
        ready.wait(60)
        yield answers
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def waiting(kind: str, port: int, count: int) -> Iterator["Synchronized[int] | None"]:
    """That many long polls; where they are answered, a counter."""
    offset = 0 if kind == "elsewhere" else WARM_UP
    if kind == "tailing" and count:
        with tailing(port, count, offset) as answers:
            yield answers
        return
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(connect(port)).sendall(poll(kind, offset))
        yield None


def measure(durability: str, kind: str, count: int) -> str:
    """One row, on a fresh node."""
    with Chronik(durability).running() as (bootstrap, pids), contextlib.ExitStack() as stack:
        port = int(bootstrap.rpartition(":")[2])
        wait_for_port(port)
        producer = stack.enter_context(connect(port))
        asked = [create_topics.CreatableTopic(name, 1, 1) for name in ("busy", "quiet")]
        producer.sendall(framed(create_topics.CreateTopicsRequest(topics=asked), 5))
        answer(producer)
        latencies(producer, WARM_UP)
        answers = stack.enter_context(waiting(kind, port, count))
        time.sleep(SETTLE_SECONDS)
        cpu = cpu_seconds(pids)
        took = latencies(producer, PRODUCES[kind])
        cpu = (cpu_seconds(pids) - cpu) / len(took)
        fed = answers.value / sum(took) * 1e3 if answers is not None else 0
    cuts = statistics.quantiles(took, n=100)
    return (
        f"{durability:>6} {kind:>9} {count:>6} {cuts[49]:>8.3f} {cuts[98]:>8.3f} "
        f"{cpu * 1e6:>8.0f} {fed:>9.0f}"
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--durability", choices=("os", "fsync"), default="os")
    parser.add_argument("--polls", type=int, nargs="+", default=[0, 1_000, 5_000])
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=KINDS)
    asked = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(asked.polls) + 500), hard))
    say("   how     polls  count   p50 ms   p99 ms   CPU us     fed/s")
    for kind in asked.kind:
        for count in asked.polls:
            say(measure(asked.durability, kind, count))


if __name__ == "__main__":
    main()
