"""Whether an ack waits for those who wait: `python bench/waiters.py [--polls 0 1000 5000]`.

One connection produces with one request in flight; beside it long polls are open, one connection
each. `elsewhere`: on another topic, where nothing happens. `hungry`: on the same partition, for
more bytes than ever come. `tailing`: on the same partition, for any byte; each answered one asks
again, so every produce also feeds them all: the ack must not wait until that is done. What came
while a consumer waited for its turn is one answer, so `fed` is in bytes.

The consumers are a process of their own. The columns `node` and `tails` say how busy a processor
node and consumers kept: where both are near 100%, the two of them leave little of a machine with
two processors to the producer, whose latency then also tells how the kernel shared them out.
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
from typing import TYPE_CHECKING, NamedTuple, cast

from contestants import Chronik
from idle import FETCH_VERSION, WAIT_MS, answer, connect, framed, latencies
from processes import cpu_seconds, say, wait_for_port

from chronik.wire.messages import create_topics, fetch

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

KINDS = ("elsewhere", "hungry", "tailing")
PRODUCES = {"elsewhere": 3_000, "hungry": 3_000, "tailing": 3_000}
WARM_UP, SETTLE_SECONDS = 500, 2
NEVER_BYTES = 1 << 30
WATERMARK_AT = slice(32, 40)
"""In an answer to a fetch of one partition of the topic `busy`."""
MARK = 0x6F66667365742121
"""An offset that is nothing else in a request."""
RECEIVE_BYTES = 1 << 16


class Tails(NamedTuple):
    """The process of the consumers."""

    pid: int
    received: "Synchronized[int]"
    """Bytes so far, of all of them."""


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


def tail(port: int, count: int, offset: int, ready: Event, received: "Synchronized[int]") -> None:
    """Consumers in a process of their own: each reads its answer and asks for what comes next."""
    head, _, rest = poll("tailing", MARK).partition(MARK.to_bytes(8, "big"))
    with selectors.DefaultSelector() as arrived:
        for _ in range(count):
            connection = connect(port)
            connection.sendall(poll("tailing", offset))
            arrived.register(connection, selectors.EVENT_READ)
        ready.set()
        while True:
            for key, _ in arrived.select():
                connection = cast("socket.socket", key.fileobj)
                found = quick_answer(connection)
                received.value += len(found)
                connection.send(head + found[WATERMARK_AT] + rest)


def quick_answer(connection: socket.socket) -> bytes:
    """One answer, mostly with one system call: consumers should cost less than the node."""
    found = connection.recv(RECEIVE_BYTES)
    while len(found) < 4 or len(found) < 4 + int.from_bytes(found[:4], "big"):
        more = connection.recv(RECEIVE_BYTES)
        if not more:
            raise ConnectionError("the node closed the connection")
        found += more
    return found


@contextlib.contextmanager
def tailing(port: int, count: int, offset: int) -> Iterator[Tails]:
    """Runs `tail`."""
    context = multiprocessing.get_context("spawn")
    ready, received = context.Event(), context.Value("q", 0)
    process = context.Process(target=tail, args=(port, count, offset, ready, received), daemon=True)
    process.start()
    try:
        ready.wait(60)
        assert process.pid is not None
        yield Tails(process.pid, received)
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def waiting(kind: str, port: int, count: int) -> Iterator[Tails | None]:
    """That many long polls; where they are answered, who asks."""
    offset = 0 if kind == "elsewhere" else WARM_UP
    if kind == "tailing" and count:
        with tailing(port, count, offset) as tails:
            yield tails
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
        tails = stack.enter_context(waiting(kind, port, count))
        time.sleep(SETTLE_SECONDS)
        clients = [tails.pid] if tails is not None else []
        cpu, client_cpu = cpu_seconds(pids), cpu_seconds(clients)
        took = latencies(producer, PRODUCES[kind])
        seconds = sum(took) / 1e3
        cpu, client_cpu = cpu_seconds(pids) - cpu, cpu_seconds(clients) - client_cpu
        fed = tails.received.value / 1e6 / seconds if tails is not None else 0
    cuts = statistics.quantiles(took, n=100)
    return (
        f"{durability:>6} {kind:>9} {count:>6} {cuts[49]:>8.3f} {cuts[98]:>8.3f} "
        f"{cpu / len(took) * 1e6:>8.0f} {fed:>9.0f} "
        f"{cpu / seconds:>6.0%} {client_cpu / seconds:>6.0%}"
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
    say("   how     polls  count   p50 ms   p99 ms   CPU us  fed MB/s   node  tails")
    for kind in asked.kind:
        for count in asked.polls:
            say(measure(asked.durability, kind, count))


if __name__ == "__main__":
    main()
