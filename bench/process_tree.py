"""CPU time and memory of a process and all its children, from /proc."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
MB = 1024
SAMPLE_S = 0.1


def tree(root: int) -> list[int]:
    """The process and everything below it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    found, waiting = [], [root]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children.get(one, [])
    return found


def stat(pid: int) -> list[str]:
    """The fields after the name, whose brackets may hold anything; none if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_s(root: int) -> float:
    """User and system time; that of children that ended is in their parent's figures."""
    fields = [found for pid in tree(root) if (found := stat(pid))]
    return sum(int(value) for one in fields for value in one[11:15]) / TICK


def machine_cpu_s() -> float:
    """What all processes together used, and what the host took away."""
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICK


def anonymous_mb(pid: int) -> float:
    """Memory that is not mapped files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / MB


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


class Memory:
    """The highest sums seen: the driver (its Python and its JVM), and Spark's Python workers."""

    def __init__(self) -> None:
        self.driver_mb = 0.0
        self.workers_mb = 0.0

    def look(self, root: int) -> None:
        sizes = {pid: anonymous_mb(pid) for pid in tree(root)}
        driver = sum(mb for pid, mb in sizes.items() if pid == root or name(pid) == "java")
        self.driver_mb = max(self.driver_mb, driver)
        self.workers_mb = max(self.workers_mb, sum(sizes.values()) - driver)


@contextmanager
def watched(root: int) -> Iterator[Memory]:
    """Samples the memory of a tree until the block ends."""
    memory, done = Memory(), threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_S):
            memory.look(root)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield memory
    finally:
        done.set()
        thread.join()
