"""Counts of a stream's batches: offsets that the source advanced against rows that came of them.

A batch has at most as many rows as offsets; fewer where control batches, aborted transactions or
compaction left gaps, never more. `spark.streams.addListener(StreamCounters())` starts counting.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

BATCHES_MAX = 1_000
"""Batches that are kept one by one; the totals count all."""
Ends = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class BatchCount:
    """One micro-batch of one source."""

    query: str
    batch: int
    offsets: int | None
    """Offsets that the batch covers; None for a query's first, whose start Spark does not tell."""
    rows: int
    behind: int | None
    """Offsets of the log beyond this batch, as the source reported them."""

    @property
    def doubled(self) -> int:
        """Rows that no offset accounts for: always a defect."""
        return 0 if self.offsets is None else max(0, self.rows - self.offsets)


class StreamCounters(StreamingQueryListener):
    """Totals over all queries of the session; called by Spark's listener thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.batches: list[BatchCount] = []
        self.rows = 0
        self.offsets = 0
        self.doubled = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to count yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = json.loads(event.progress.json)
        with self._lock:
            for one in counts(progress):
                self.rows += one.rows
                self.offsets += one.offsets or 0
                self.doubled += one.doubled
                self.batches = [*self.batches[1 - BATCHES_MAX :], one]

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """An idle query advances nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Its counts stay in the totals."""


def counts(progress: Mapping[str, Any]) -> list[BatchCount]:
    """The sources of one progress report whose offsets have the form of this source and of Kafka's.

    Spark names a Python source by its Java class, so the form is the only mark.
    """
    return [
        BatchCount(
            progress.get("name") or progress["id"],
            progress["batchId"],
            advanced(_ends(one.get("startOffset")), _ends(one.get("endOffset"))),
            one["numInputRows"],
            advanced(_ends(one.get("endOffset")), _ends(one.get("latestOffset"))),
        )
        for one in progress["sources"]
        if _ends(one.get("endOffset")) is not None
    ]


def _ends(told: Any) -> Ends | None:
    """{"topic": {"0": 17}}, which Spark hands over as JSON or as text that holds it."""
    found = json.loads(told) if isinstance(told, str) else told
    if not isinstance(found, dict) or not found:
        return None
    parts = [one for one in found.values() if isinstance(one, dict)]
    fits = len(parts) == len(found) and all(name.isdigit() for one in parts for name in one)
    return found if fits else None


def advanced(first: Ends | None, last: Ends | None) -> int | None:
    """Offsets between two places; a partition that is new in the second one is not known."""
    if first is None or last is None:
        return None
    total = 0
    for topic, parts in last.items():
        for partition, end in parts.items():
            start = first.get(topic, {}).get(partition)
            if start is None:
                return None
            total += end - start
    return total
