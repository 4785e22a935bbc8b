"""A long run: one producer and a group of consumers for hours, judged round by round.

The clients live through all rounds. Between two rounds the producer waits until its sends have
ended and the consumers have read them; then each ledger goes on in a new file, and the files of
the round are judged by a process beside the run, which may fall behind: the backlog is on disk.
"""

import multiprocessing
import os
import resource
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from chronik.audit.anomaly import Policy
from chronik.audit.client_confluent import Cluster
from chronik.audit.faults import Faults
from chronik.audit.plan import Plan, Progress, Show, ledger_path
from chronik.audit.reading import Reader
from chronik.audit.rounds import Judged, Round, Totals, judge_round
from chronik.audit.sending import Sender
from chronik.audit.verify import Result
from chronik.audit.workload import finish, leaders_watched, new_readers, settled_ends

ROUND_RECORDS_MAX = 100_000
"""What one judgement holds in memory: some 250 MB."""
JUDGE_NICE = 10
WAIT_S = 0.02

Told = Callable[[Judged], None]


@dataclass(frozen=True, slots=True)
class Soak:
    """What is run: the plan's `messages` follow from rate and duration."""

    plan: Plan
    duration_s: float
    round_s: float = 30.0
    fault_command: str = ""
    fault_every_s: float = 60.0
    keep: int = 0
    """Clean rounds whose ledgers stay on disk; 0 keeps all. Those with anomalies always stay."""

    @property
    def records_per_round(self) -> int:
        rate = self.plan.rate
        return min(ROUND_RECORDS_MAX, max(1, int(rate * self.round_s) if rate else 1 << 62))


class _Judge:
    """Rounds go in as they end, verdicts come out in their order."""

    def __init__(self, soak: Soak, told: Told) -> None:
        self.totals = Totals()
        self._soak, self._told = soak, told
        self._policy = Policy(at_least_once=soak.plan.at_least_once)
        self._waiting: deque[Future[Judged]] = deque()
        self._clean: deque[Round] = deque()
        self._pool = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=os.nice,
            initargs=(JUDGE_NICE,),
            max_tasks_per_child=50,
        )

    def submit(self, ended: Round) -> None:
        self._waiting.append(self._pool.submit(judge_round, ended, self._policy))
        self.collect(wait=False)

    def collect(self, *, wait: bool) -> None:
        while self._waiting and (wait or self._waiting[0].done()):
            judged = self._waiting.popleft().result()
            self.totals.add(judged)
            self._told(judged)
            if judged.verdict.ok:
                self._clean.append(judged.round)
        while self._soak.keep and len(self._clean) > self._soak.keep:
            for path in self._clean.popleft().files:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def run_soak(soak: Soak, show: Show, told: Told) -> Result:
    """Runs until the time is over; `told` hears each round's verdict."""
    plan = replace(soak.plan, messages=1 << 62)
    plan.ledger.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(plan.bootstrap, plan.timeout_s)
    cluster.brokers()
    cluster.create_topic(plan.topic, plan.partitions, plan.replication)
    progress = Progress()
    judge = _Judge(soak, told)
    faults = Faults(plan, soak.fault_command, soak.fault_every_s)
    try:
        with leaders_watched(cluster, plan), faults:
            _rounds(replace(soak, plan=plan), cluster, progress, judge, show)
        judge.collect(wait=True)
    finally:
        judge.close()
    verdict = judge.totals.verdict()
    verdict.measures["faults"] = {**verdict.measures["faults"], **faults.done}
    verdict.measures["memory_mb_max"] = _memory_mb()
    return Result("soak", replace(plan, messages=progress.sent), progress, verdict)


def _rounds(soak: Soak, cluster: Cluster, progress: Progress, judge: _Judge, show: Show) -> None:
    plan, number = soak.plan, 1
    readers = new_readers(plan, progress, number)
    with Sender(plan, progress, number) as sender:
        for reader in readers:
            reader.start()
        _await_members(plan, readers, progress, show)
        starts = _await_readers(cluster, plan, readers, progress, show)
        began = time.perf_counter()
        deadline = began + soak.duration_s
        while (left_s := deadline - time.perf_counter()) > 0:
            first, begin_ns = progress.sent, time.monotonic_ns()
            most = max(1, int(plan.rate * left_s)) if plan.rate else soak.records_per_round
            sender.send_to(first + min(soak.records_per_round, most), show)
            sender.settle()
            ends = _await_readers(cluster, plan, readers, progress, show)
            number += 1
            _rotate(sender, readers, number)
            progress.produce_s = time.perf_counter() - began
            times = (begin_ns, time.monotonic_ns())
            files = _files(plan, readers, number - 1)
            judge.submit(Round(number - 1, plan.topic, first, *times, starts, ends, files))
            starts = ends
        finish(cluster, plan, readers, progress, show)


def _await_members(plan: Plan, readers: list[Reader], progress: Progress, show: Show) -> None:
    """A group takes seconds to form: that is no latency of the cluster."""
    wanted = min(plan.consumers, plan.partitions)
    deadline = time.perf_counter() + plan.timeout_s
    while sum(reader.has_place for reader in readers) < wanted:
        show(progress)
        _raise_early_end(readers)
        if time.perf_counter() > deadline:
            return
        time.sleep(WAIT_S)


def _await_readers(
    cluster: Cluster, plan: Plan, readers: list[Reader], progress: Progress, show: Show
) -> dict[int, int]:
    """Until all is read that is there, or nobody reads on for the time of a timeout."""
    ends = settled_ends(cluster, plan, progress, show)
    total, moved = -1, time.perf_counter()
    while not all(reader.team.is_at(ends) for reader in readers):
        show(progress)
        if total != sum(progress.read.values()):
            total, moved = sum(progress.read.values()), time.perf_counter()
        if time.perf_counter() - moved > plan.timeout_s:
            progress.timed_out.append(f"round ending at {progress.sent}")
            break
        _raise_early_end(readers)
        time.sleep(WAIT_S)
    return ends


def _raise_early_end(readers: list[Reader]) -> None:
    for reader in readers:
        if not reader.running:
            reader.join()


def _rotate(sender: Sender, readers: list[Reader], number: int) -> None:
    sender.rotate(number)
    for reader in readers:
        reader.rotate(number)
    while not all(reader.rotated for reader in readers):
        time.sleep(WAIT_S)


def _files(plan: Plan, readers: list[Reader], number: int) -> list[Path]:
    names = ["p0", *(reader.name for reader in readers)]
    return [ledger_path(plan, name, number) for name in names]


def _memory_mb() -> float:
    """The most that this process and its judge have held."""
    most = [
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return round(max(most) / 1024, 1)
