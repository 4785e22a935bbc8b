"""Whether an ack waits for those who wait: `python bench/waiters.py [--polls 0 1000 5000]`.

One connection produces with one request in flight; beside it long polls are open, one connection
each. `elsewhere`: on another topic, where nothing happens. `hungry`: on the same partition, for
more bytes than ever come. `tailing`: on the same partition, for any byte; each answered one asks
again, so every produce also feeds them all: the ack must not wait until that is done.
"""

import argparse
import contextlib
import resource
import selectors
import socket
import statistics
import threading
import time

from contestants import Chronik
from idle import FETCH_VERSION, WAIT_MS, answer, connect, framed, latencies
from processes import cpu_seconds, say, wait_for_port

from chronik.wire.messages import create_topics, fetch

KINDS = ("elsewhere", "hungry", "tailing")
PRODUCES = {"elsewhere": 3_000, "hungry": 3_000, "tailing": 200}
WARM_UP, SETTLE_SECONDS = 500, 2
NEVER_BYTES = 1 << 30


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


class Tail(threading.Thread):
    """Reads the answers of many polls and asks again, from the record that comes next."""

    def __init__(self, connections: list[socket.socket], offset: int) -> None:
        super().__init__(daemon=True)
        self._offsets = dict.fromkeys(connections, offset)
        self._running = True
        self.answers = 0

    def run(self) -> None:
        """Until `stop`."""
        with selectors.DefaultSelector() as ready:
            for connection in self._offsets:
                ready.register(connection, selectors.EVENT_READ)
            while self._running:
                for key, _ in ready.select(0.1):
                    connection = key.fileobj
                    assert isinstance(connection, socket.socket)
                    answer(connection)
                    self.answers += 1
                    self._offsets[connection] += 1
                    connection.sendall(poll("tailing", self._offsets[connection]))

    def stop(self) -> None:
        """Ends the thread."""
        self._running = False
        self.join()


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
        offset = 0 if kind == "elsewhere" else WARM_UP
        polls = [stack.enter_context(connect(port)) for _ in range(count)]
        for connection in polls:
            connection.sendall(poll(kind, offset))
        time.sleep(SETTLE_SECONDS)
        tail = Tail(polls, offset) if kind == "tailing" and polls else None
        if tail is not None:
            tail.start()
            stack.callback(tail.stop)
        cpu = cpu_seconds(pids)
        took = latencies(producer, PRODUCES[kind])
        cpu = (cpu_seconds(pids) - cpu) / len(took)
        fed = tail.answers / sum(took) * 1e3 if tail is not None else 0
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
