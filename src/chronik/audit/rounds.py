"""A long run is judged round by round, so that its memory does not grow with its length.

A round is a range of sequences that were all sent, ended and read before the next one began, and a
range of offsets per partition. Its ledgers are files of their own. What a group gave again from an
earlier round was judged there; what an earlier range of offsets holds is not this round's matter.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chronik.audit.anomaly import EXAMPLES_MAX, Anomaly, Level, Policy, Verdict
from chronik.audit.ledger import read_rows
from chronik.audit.measures import POINTS_MAX
from chronik.audit.rows import Kind, Row
from chronik.audit.verdict import judge

_BOUNDS = "bounds"


@dataclass(frozen=True, slots=True)
class Round:
    """One round, ended."""

    number: int
    topic: str
    first: int
    """Its first sequence."""
    begin_ns: int
    end_ns: int
    starts: dict[int, int]
    """Per partition the end offset before it."""
    ends: dict[int, int]
    files: list[Path]


@dataclass(frozen=True, slots=True)
class Judged:
    """A round and its verdict."""

    round: Round
    verdict: Verdict
    given_again: int
    """Records of earlier rounds that a rebalance brought back."""


def judge_round(ended: Round, policy: Policy) -> Judged:
    rows = read_rows(ended.files)
    own = [row for row in rows if not _is_earlier(row, ended)]
    verdict = judge([*own, *_bounds(ended)], policy)
    return Judged(ended, verdict, sum(row.kind == Kind.RECORD for row in rows) - _records(own))


def _records(rows: Iterable[Row]) -> int:
    return sum(row.kind == Kind.RECORD for row in rows)


def _is_earlier(row: Row, ended: Round) -> bool:
    """Sent and stored before the round: a record is earlier only if it is so by both."""
    if row.kind not in (Kind.RECORD, Kind.SEND) or not 0 <= row.sequence < ended.first:
        return False
    return row.kind == Kind.SEND or row.offset < ended.starts.get(row.partition, 0)


def _bounds(ended: Round) -> Iterable[Row]:
    """The range of offsets to be read, and the ends as seen: an end that went back is found."""
    for partition, end in ended.ends.items():
        start = ended.starts.get(partition, 0)
        place = Row(Kind.LOG, _BOUNDS, topic=ended.topic, partition=partition)
        yield place._replace(position=start, offset=end)
        for at_ns, offset in ((ended.begin_ns, start), (ended.end_ns, end)):
            yield place._replace(kind=Kind.POLL, end_ns=at_ns, position=offset, offset=offset)


@dataclass(slots=True)
class Totals:
    """All rounds so far as one verdict; its size does not depend on their number."""

    rounds: int = 0
    ok: bool = True
    given_again: int = 0
    begin_ns: int = -1
    anomalies: dict[tuple[str, Level], Anomaly] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(
        default_factory=lambda: {"sends": Counter(), "refusals": Counter(), "faults": Counter()}
    )
    records: int = 0
    values: int = 0
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)
    worst: dict[str, dict[str, float]] = field(
        default_factory=lambda: {"ack_latency_ms": {}, "delivery_latency_ms": {}}
    )
    series: list[tuple[float, int, int, int]] = field(default_factory=list)
    """Seconds, and sent, acked and read in total at the end of a round."""

    def add(self, judged: Judged) -> None:
        verdict, measures = judged.verdict, judged.verdict.measures
        self.rounds += 1
        self.ok = self.ok and verdict.ok
        self.given_again += judged.given_again
        self.records += measures["records"]
        self.values += measures["values_read"]
        for name, counter in self.counts.items():
            counter.update(measures[name])
        for anomaly in verdict.anomalies:
            self._add_anomaly(anomaly)
        for name, row in measures["partitions"].items():
            self.partitions[name] = _joined(self.partitions.get(name), row)
        for name, worst in self.worst.items():
            for rank, value in measures[name].items():
                worst[rank] = max(value, worst.get(rank, 0.0))
        self._add_point(judged.round)

    def _add_anomaly(self, found: Anomaly) -> None:
        known = self.anomalies.setdefault(
            (found.name, found.level), Anomaly(found.name, found.level)
        )
        known.count += found.count
        known.examples.extend(found.examples[: EXAMPLES_MAX - len(known.examples)])

    def _add_point(self, ended: Round) -> None:
        if self.begin_ns < 0:
            self.begin_ns = ended.begin_ns
        seconds = round((ended.end_ns - self.begin_ns) / 1e9, 3)
        sends = self.counts["sends"]
        self.series.append((seconds, sends.total(), sends["ok"], self.values))
        if len(self.series) > 2 * POINTS_MAX:
            self.series = [*self.series[:-1:2], self.series[-1]]

    def verdict(self) -> Verdict:
        """Latencies are those of the worst round, rank by rank."""
        order = list(Level)
        found = sorted(self.anomalies.values(), key=lambda one: (order.index(one.level), one.name))
        return Verdict(self.ok, found, self._measures())

    def _measures(self) -> dict[str, Any]:
        named = ("seconds", "sent", "acked", "read")
        series = [list(values) for values in zip(*self.series, strict=True)]
        over_time = dict(zip(named, series, strict=True)) if series else {}
        if over_time:
            pairs = zip(over_time["acked"], over_time["read"], strict=True)
            over_time["unseen"] = [max(0, acked - read) for acked, read in pairs]
        return {
            **{name: dict(counter) for name, counter in self.counts.items()},
            "records": self.records,
            "values_read": self.values,
            "partitions": self.partitions,
            **self.worst,
            "over_time": over_time,
            "lag_over_time": {},
            "rounds": self.rounds,
            "given_again": self.given_again,
        }


def _joined(before: dict[str, int] | None, row: dict[str, int]) -> dict[str, int]:
    """Counts add up; offsets reach from the first round's to the last one's."""
    if before is None:
        return dict(row)
    joined = {name: before[name] + row[name] for name in ("sent", "read", "missed", "gaps")}
    lows = [low for low in (before["offset_min"], row["offset_min"]) if low >= 0]
    joined["offset_min"] = min(lows, default=-1)
    joined["offset_max"] = max(before["offset_max"], row["offset_max"])
    return {**row, **joined, "log_start": before["log_start"]}
