"""How an audit on Spark grows with the ledger: time, events per second and memory, per size.

    python bench/audit_scale.py --events 1000000 10000000 100000000 [--change drop] [--out FILE]

Each size is audited by `chronik audit --engine spark` in a process of its own; memory is the sum of
what all its processes (driver, JVM, Python workers) held at once, without shared pages counted
twice. The ledgers are made first and are not part of the time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from audit_ledgers import CHANGES, EXPECTED, shape_of, write_ledgers

SAMPLE_S = 0.25


def run(folder: Path, events: int, change: str, seed: int, master: str) -> dict[str, Any]:
    """One audit of one ledger directory."""
    command = [sys.executable, "-m", "chronik", "audit", str(folder), "--json"]
    command += ["--engine", "spark", "--master", master]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        peak = Peak(process.pid)
        peak.start()
        out, errors = process.communicate()
        seconds = time.perf_counter() - began
        peak.stop()
    if not out:
        raise SystemExit(errors.decode())
    verdict = json.loads(out)
    found = {one["name"]: one["count"] for one in verdict["anomalies"]}
    return {
        "events": events,
        "change": change,
        "seed": seed,
        "master": master,
        "seconds": round(seconds, 1),
        "events_per_second": round(events / seconds),
        "memory_mb_max": round(peak.bytes_max / 1e6),
        "found": found,
        "as_expected": found == EXPECTED[change],
    }


class Peak(threading.Thread):
    """Looks at the memory of a process and all below it."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._ended = pid, threading.Event()
        self.bytes_max = 0

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.bytes_max = max(self.bytes_max, sum(map(held, tree(self._pid))))

    def stop(self) -> None:
        self._ended.set()
        self.join()


def tree(pid: int) -> list[int]:
    """The process and its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry))
    found, work = [], [pid]
    while work:
        found.append(work.pop())
        work.extend(parents.get(found[-1], []))
    return found


def held(pid: int) -> int:
    """Proportional set size: a page shared by two counts half in each."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--change", choices=CHANGES, default="drop")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--keep", type=Path, help="Use ledgers in this folder, or make them there.")
    parser.add_argument("--out", type=Path, help="Append the results here, as JSON lines.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        for events in arguments.events:
            shape = shape_of(events, change=arguments.change, seed=arguments.seed)
            target = folder / f"{events}-{arguments.change}-{arguments.seed}"
            if not target.exists():
                write_ledgers(target, shape)
            result = run(target, events, arguments.change, arguments.seed, arguments.master)
            print(json.dumps(result), flush=True)  # noqa: T201
            if arguments.out:
                with arguments.out.open("a") as lines:
                    lines.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
