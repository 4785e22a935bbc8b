"""Runs of the pipeline that end by kill -9 at a chosen point: `python -m tests.pipeline.victim`.

One process loads everything once and forks a child for each line `ACTION POINT BOOTSTRAP WAREHOUSE
TOPIC` that it reads. The child kills itself before its POINT-th call of a function, Python's or
C's, so that a point can be met again; with POINT 0 it lives. A negative POINT is a time in
microseconds after which the kernel ends it, wherever it is: also inside of a library. The answer
is a line with the exit code, negative for a signal, and the number of calls.
"""

import datetime
import os
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chronik.pipeline.delta_care import maintain
from chronik.pipeline.delta_table import DeltaWarehouse, deltalake
from chronik.pipeline.ingest import Job, ingest_topic
from chronik.pipeline.maintenance import compact, delete_orphans, expire
from chronik.pipeline.tables import Tables
from chronik.pipeline.warehouse import Warehouse, table_name

RECORDS_PER_COMMIT = 400
SOON = datetime.timedelta(hours=1)


def raw(bootstrap: str, warehouse: str, topic: str) -> None:
    ingest("raw", bootstrap, warehouse, topic)


def as_json(bootstrap: str, warehouse: str, topic: str) -> None:
    ingest("json", bootstrap, warehouse, topic)


def delta(bootstrap: str, warehouse: str, topic: str) -> None:
    ingest("json", bootstrap, warehouse, topic, DeltaWarehouse(warehouse))


def ingest(
    mode: str, bootstrap: str, warehouse: str, topic: str, place: Tables | None = None
) -> None:
    place = place or Warehouse(warehouse)
    ingest_topic(Job(bootstrap, place, mode, records_max=RECORDS_PER_COMMIT, parallelism=2), topic)


def compaction(_: str, warehouse: str, topic: str) -> None:
    for table in tables(warehouse, topic):
        compact(table)


def expiry(_: str, warehouse: str, topic: str) -> None:
    # Nothing else runs, so whatever is in no snapshot now belongs to a dead run.
    found = tables(warehouse, topic)
    later = datetime.datetime.now(datetime.UTC) + SOON
    for table in found:
        expire(table, later)
    delete_orphans(found, later)


def delta_care(_: str, warehouse: str, topic: str) -> None:
    none = datetime.timedelta(0)
    maintain(DeltaWarehouse(warehouse), table_name(topic), snapshot_age=none, orphan_age=none)


def tables(warehouse: str, topic: str) -> list[Any]:
    names = (table_name(topic), table_name(topic) + "__dlq")
    loaded = [Warehouse(warehouse).load(name) for name in names]
    return [table for table in loaded if table is not None]


ACTIONS: dict[str, Callable[[str, str, str], None]] = {
    "raw": raw,
    "json": as_json,
    "delta": delta,
    "compaction": compaction,
    "expiry": expiry,
    "delta-care": delta_care,
}


def child(action: str, point: int, calls: Path, arguments: list[str]) -> None:
    """Never returns."""
    count = 0

    def counted(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        if event in {"call", "c_call"}:
            count += 1
            if count == point:
                os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        if point < 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # as sudden as kill -9
            signal.setitimer(signal.ITIMER_REAL, -point / 1e6)
        sys.setprofile(counted)
        ACTIONS[action](*arguments)
        sys.setprofile(None)
        calls.write_text(str(count))
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    calls = Path(sys.argv[1])
    if find_spec("deltalake") is not None:
        deltalake()  # its own calls are not those that count
    for line in sys.stdin:
        action, point, *arguments = line.split()
        calls.write_text("0")
        pid = os.fork()
        if pid == 0:
            child(action, int(point), calls, arguments)
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)} {calls.read_text()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
