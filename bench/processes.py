"""What a server process costs: its memory, its time on the processor, its start."""

import os
import socket
import sys
import time
from collections.abc import Iterable

from contestants import HOST

START_SECONDS_MAX = 120.0


def wait_for_port(port: int) -> float:
    """Seconds until somebody listens."""
    began = time.perf_counter()
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            if time.perf_counter() - began > START_SECONDS_MAX:
                raise
            time.sleep(0.005)
        else:
            return time.perf_counter() - began


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of the processes so far."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def anonymous_bytes(pids: Iterable[int]) -> int:
    """Resident memory without mapped files, which the kernel may take back."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        total += int(fields["RssAnon"].split()[0]) * 1024
    return total


def say(line: str) -> None:
    """Prints at once, also into a pipe."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
