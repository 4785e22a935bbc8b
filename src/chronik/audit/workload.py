"""A run of the auditor against a cluster: produce N records, read them back, keep ledgers of both.

The producer runs on the caller's thread (`sending.py`) and each consumer on its own (`reading.py`);
each writes its own ledger, and so does a watch of the partitions' leaders. Nothing is judged here:
`verify.py` reads the ledgers back from disk and judges those.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from chronik.audit.client_confluent import Cluster
from chronik.audit.clients import TransientError
from chronik.audit.ledger import LedgerWriter
from chronik.audit.plan import Plan, Progress, Show, client_words, ledger_path
from chronik.audit.reading import Reader, Team
from chronik.audit.rows import Kind, Row
from chronik.audit.sending import produce

__all__ = ["Plan", "Progress", "Reader", "Show", "finish", "produce", "run"]
WATCH_S = 0.25
SETTLE_S = 1.5
"""Longer than a follower's fetch waits (replica.fetch.wait.max.ms, 500): then ends stand still."""


def run(plan: Plan, show: Show) -> Progress:
    """One whole run: topic, readers beside the producer, final read up to the end offsets."""
    plan.ledger.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(plan.bootstrap, plan.timeout_s)
    cluster.brokers()
    cluster.create_topic(plan.topic, plan.partitions, plan.replication)
    progress = Progress()
    readers = new_readers(plan, progress)
    with leaders_watched(cluster, plan):
        for reader in readers:
            reader.start()
        produce(plan, progress, show)
        finish(cluster, plan, readers, progress, show)
    return progress


def new_readers(plan: Plan, progress: Progress, part: int = 0) -> list[Reader]:
    """The members of one group, or readers that each read everything."""
    team = Team(f"chronik-{plan.run_name}-c0") if plan.group else None
    return [Reader(plan, f"c{n}", progress, team, part) for n in range(plan.consumers)]


def finish(
    cluster: Cluster, plan: Plan, readers: Reader | Sequence[Reader], progress: Progress, show: Show
) -> None:
    """The final read: the end offsets are asked first, then must be reached."""
    several = [readers] if isinstance(readers, Reader) else readers
    ends = settled_ends(cluster, plan, progress, show)
    for reader in several:
        reader.stop_at(ends)
    while any(reader.running for reader in several):
        show(progress)
        time.sleep(0.1)
    show(progress)
    for reader in several:
        reader.join()
    name = f"final-{several[0].name}"
    with LedgerWriter(ledger_path(plan, name), plan.run_name, name) as ledger:
        write_bounds(ledger, plan, cluster.log_bounds(plan.topic, plan.partitions))


def settled_ends(cluster: Cluster, plan: Plan, progress: Progress, show: Show) -> dict[int, int]:
    """The end offsets. What acks=1 acknowledged is readable only when followers have it too."""
    settle_s = 0.0 if plan.acks == "all" else SETTLE_S
    ends, moved = _ends(cluster, plan), time.perf_counter()
    while time.perf_counter() - moved < settle_s:
        show(progress)
        time.sleep(WATCH_S)
        later = _ends(cluster, plan)
        if later != ends:
            ends, moved = later, time.perf_counter()
    return ends


def _ends(cluster: Cluster, plan: Plan) -> dict[int, int]:
    bounds = cluster.log_bounds(plan.topic, plan.partitions)
    return {partition: end for partition, (_, end) in bounds.items()}


def write_bounds(ledger: LedgerWriter, plan: Plan, bounds: dict[int, tuple[int, int]]) -> None:
    for partition, (start, end) in bounds.items():
        row = Row(Kind.LOG, begin_ns=ledger.now_ns(), topic=plan.topic, partition=partition)
        ledger.append(row._replace(position=start, offset=end))


@contextmanager
def leaders_watched(cluster: Cluster, plan: Plan) -> Iterator[None]:
    """Writes down who leads each partition, and each change of it, as the metadata shows it."""
    ended = threading.Event()
    watch = threading.Thread(
        target=_watch_leaders, args=(cluster, plan, ended), name="leaders", daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


def _watch_leaders(cluster: Cluster, plan: Plan, ended: threading.Event) -> None:
    known: dict[int, tuple[int, str]] = {}
    with LedgerWriter(ledger_path(plan, "metadata"), plan.run_name, "metadata") as ledger:
        ledger.note(Kind.CLIENT, client_words(plan))
        while not ended.wait(WATCH_S):
            try:
                found = cluster.leaders(plan.topic)
            except TransientError:
                continue
            for partition, (leader, isr) in sorted(found.items()):
                if known.get(partition) != (leader, isr):
                    ledger.append(_leader_row(plan, partition, leader, isr, ledger.now_ns()))
            ledger.flush()
            known = known | found


def _leader_row(plan: Plan, partition: int, leader: int, isr: str, now_ns: int) -> Row:
    said = f"leader={leader} isr={isr}"
    place = Row(Kind.EPOCH, "", now_ns, now_ns, plan.topic, partition)
    return place._replace(detail=said)
