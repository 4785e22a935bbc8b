"""Many small histories in one: Spark takes seconds for each job, however few its rows are.

Topics and processes of history n get the prefix `hN/`, so that no rule can see another history.
"""

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.audit.scenario_runner import rows_of

from chronik.audit.anomaly import Policy, Verdict
from chronik.audit.ledger import LedgerWriter
from chronik.audit.rows import Row
from chronik.audit.verdict import judge
from chronik.trace.events import TraceEvent
from chronik.trace.files import RotatingFiles
from chronik.trace.settings import FileLimits

SCENARIOS = Path(__file__).parents[1] / "audit" / "scenarios"
Key = tuple[str, str, str]
"""History, name and level of an anomaly."""


def scenario_histories() -> list[tuple[str, list[Row], bool]]:
    """The unit histories of the auditor: name, rows, whether the policy is at-least-once."""
    found = []
    for path in sorted(SCENARIOS.glob("*.txt")):
        for number, block in enumerate(path.read_text().split("\n\n")):
            lines = [line for line in block.partition("\n----")[0].splitlines() if line[:1] != "#"]
            plain = [line for line in lines if line.strip() and not line.startswith("policy")]
            rows = [
                row
                for at, line in enumerate(lines)
                if line in plain
                for row in rows_of(line.split()[0], line.split()[1:], at)
            ]
            if rows:
                retried = any("at_least_once=true" in line for line in lines)
                found.append((f"{path.stem}.{number}", rows, retried))
    return found


def merged(histories: Iterable[list[Row]]) -> list[Row]:
    return [_renamed(row, number) for number, rows in enumerate(histories) for row in rows]


def _renamed(row: Row, number: int) -> Row:
    prefix = f"h{number}/"
    return row._replace(
        process=row.process and prefix + row.process,
        topic=row.topic and prefix + row.topic,
        sender=row.sender and prefix + row.sender,
    )


def write(path: Path, rows: Iterable[Row]) -> Path:
    """One ledger with all rows in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with LedgerWriter(path, "", "nobody") as ledger:
        for row in rows:
            ledger.append(row)
    return path


def write_by_process(folder: Path, rows: list[Row]) -> list[Path]:
    """One ledger per process, as workloads write them."""
    names = dict.fromkeys(row.process for row in rows)
    return [
        write(folder / f"{n}.ledger", [row for row in rows if row.process == name])
        for n, name in enumerate(names)
    ]


def write_traces(folder: Path, events: Iterable[TraceEvent]) -> Path:
    """A node's trace directory, as the node itself writes it."""
    folder.mkdir()
    files = RotatingFiles(folder, 1, time.time_ns, time.monotonic_ns, FileLimits())
    files.write([tuple(event) for event in events])
    files.close()
    return folder


def found_by_oracle(histories: list[list[Row]], policy: Policy) -> dict[Key, Any]:
    """Per history and anomaly: how many, and what is said of the first ones."""
    found = {}
    for number, rows in enumerate(histories):
        for one in judge(merged_one(rows, number), policy).anomalies:
            said = sorted(example.statement for example in one.examples)
            found[f"h{number}", one.name, str(one.level)] = (one.count, said)
    return found


def merged_one(rows: list[Row], number: int) -> list[Row]:
    return [_renamed(row, number) for row in rows]


def comparable(verdict: Verdict) -> dict[str, Any]:
    """What must be equal whoever judges: all but the choice of examples and their rows."""
    return {
        "ok": verdict.ok,
        "anomalies": [(one.name, str(one.level), one.count) for one in verdict.anomalies],
    }


def history_of(text: str) -> str:
    """The history that a statement or a topic speaks of."""
    found = re.search(r"h\d+(?=/)", text)
    assert found, text
    return found.group()
