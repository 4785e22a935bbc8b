"""What a run does to its cluster while records are sent: pause, kill, cut the power, flip a bit."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import AdminClient

from chronik.audit.workload import Plan, Progress, Reader
from chronik.lab.cluster import LabCluster, LabError
from chronik.lab.faults import PAUSE_FILE, power_cut
from chronik.wire.records import scan

QUIET_S = 0.7
"""Longer than a follower's long poll, and than the interval at which traces reach their file."""
WAIT_S_MAX = 15.0


@dataclass(slots=True)
class Stage:
    """One run: its cluster, its workload, and the moments at which something happens."""

    cluster: LabCluster
    plan: Plan
    progress: Progress
    reader: Reader
    moments: Mapping[int, "Action"]
    """Number of records sent, to what happens then; the producer waits for it."""
    _done: set[int] = field(default_factory=set)

    def look(self, progress: Progress) -> None:
        """Called by the producer after each chunk, and by the reader's last wait."""
        for moment, action in self.moments.items():
            if progress.sent >= moment and moment not in self._done:
                self._done.add(moment)
                action(self)

    def leader(self) -> int:
        """The leader of partition 0, as the nodes that live say; -1 while there is none."""
        admin: Any = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 2})
        topic = admin.list_topics(self.plan.topic, timeout=5.0).topics[self.plan.topic]
        return int(topic.partitions[0].leader) if topic.partitions else -1


Action = Callable[[Stage], None]


def start_reader(stage: Stage) -> None:
    """The reader begins only now, and has caught up before more is sent."""
    stage.reader.start()
    _wait(lambda: stage.progress.read[stage.reader.name] >= stage.progress.sent)


def start_reader_last(stage: Stage) -> None:
    """The reader finds everything written."""
    time.sleep(QUIET_S)
    stage.reader.start()


def await_reader(seconds: float, stage: Stage) -> None:
    """Time for the reader to get everything, and for the lack of it to show."""
    deadline = time.perf_counter() + seconds
    while stage.progress.read[stage.reader.name] < stage.progress.sent:
        if time.perf_counter() > deadline:
            return
        time.sleep(0.05)


def pause_replication(stage: Stage) -> None:
    """Followers fall behind from now on."""
    (stage.cluster.folder / PAUSE_FILE).touch()
    time.sleep(QUIET_S)


def kill_leader(stage: Stage) -> None:
    """The leader dies with what only it has; a follower takes over."""
    time.sleep(QUIET_S)
    leader = stage.leader()
    stage.cluster.kill(leader)
    (stage.cluster.folder / PAUSE_FILE).unlink(missing_ok=True)
    _wait(lambda: stage.leader() not in (-1, leader))


def cut_power(stage: Stage) -> None:
    """The node dies, its disk loses what was never synced, and it starts again."""
    time.sleep(QUIET_S)
    stage.cluster.kill(1)
    power_cut(stage.cluster.data(1))
    stage.cluster.restart(1)


def cut_power_then_read(stage: Stage) -> None:
    cut_power(stage)
    stage.reader.start()


def flip_bit_then_read(stage: Stage) -> None:
    """One bit of a record in the middle of a segment file changes; then everything is read."""
    time.sleep(QUIET_S)
    if stage.cluster.defect:
        _flip_bit(stage)
    stage.reader.start()


def _flip_bit(stage: Stage) -> None:
    (path,) = stage.cluster.data(1).rglob(f"{stage.plan.topic}-0/*.log")
    batches = list(scan(path.read_bytes()))
    position, header = batches[len(batches) // 2]
    with path.open("r+b") as file:
        at = position + header.size - 10  # in the filler of the batch's last value
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + WAIT_S_MAX
    while not condition():
        if time.perf_counter() > deadline:
            raise LabError("the cluster did not get to the next step of the run in time")
        time.sleep(0.05)
