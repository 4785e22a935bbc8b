"""One row per verdict of a saved audit report: what was sent and read, and what was wrong.

Reports are the HTML files of `chronik verify --report` and `chronik audit --report`, which carry
their verdicts as JSON.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

COLUMNS: dict[str, pa.DataType] = {
    "report": pa.string(),
    "written": pa.timestamp("us", tz="UTC"),
    "run": pa.string(),
    "ok": pa.bool_(),
    "sent": pa.int64(),
    "acked": pa.int64(),
    "read": pa.int64(),
    "missed": pa.int64(),
    "anomalies": pa.list_(pa.string()),
}
ARROW = pa.schema(COLUMNS)
_VERDICT = re.compile(r'<script type="application/json" id="verdict">(.*?)</script>', re.DOTALL)
OK = "ok"


@dataclass(frozen=True, slots=True)
class Saved:
    """One report."""

    path: str
    written: datetime
    verdicts: dict[str, Any]


def read(folders: Iterable[Path]) -> list[Saved]:
    """The reports under the folders, other HTML files left out."""
    paths = sorted({path for one in folders for path in one.rglob("*.html")})
    return [saved for path in paths for saved in _saved(path)]


def _saved(path: Path) -> Iterator[Saved]:
    found = _VERDICT.search(path.read_text(encoding="utf-8", errors="replace"))
    if found is not None:
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        yield Saved(str(path), written, json.loads(found[1]))


def rows(reports: Iterable[Saved]) -> pa.Table:
    """`anomalies` are the names of those that break the promise, with their counts."""
    found = [_row(one, run, said) for one in reports for run, said in one.verdicts.items()]
    return pa.Table.from_pylist(found, ARROW)


def _row(report: Saved, run: str, verdict: dict[str, Any]) -> dict[str, Any]:
    measures = verdict["measures"]
    failed = [one for one in verdict["anomalies"] if one["level"] == "fail"]
    return {
        "report": report.path,
        "written": report.written,
        "run": run,
        "ok": verdict["ok"],
        "sent": sum(measures["sends"].values()),
        "acked": measures["sends"].get(OK, 0),
        "read": measures["records"],
        "missed": sum(one["missed"] for one in measures["partitions"].values()),
        "anomalies": [f"{one['name']}: {one['count']}" for one in failed],
    }
