"""The shape of a verdict: anomalies with a level, a count and the rows that show them."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from chronik.audit.rows import Row

EXAMPLES_MAX = 5
STALL_NS = 5_000_000_000
"""No progress for this long while data is readable is a stall (the figure of the seed notes)."""


class Level(StrEnum):
    """Whether an anomaly breaks the promise, deserves a look, or is what Kafka allows."""

    FAIL = "fail"
    WARN = "warn"
    ALLOWED = "allowed"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is judged how."""

    stall_ns: int = STALL_NS
    stall_level: Level = Level.WARN
    imbalance_share: float = 0.10
    imbalance_records_min: int = 100
    at_least_once: bool = False
    """Producers without idempotence may duplicate and reorder (their broker failed meanwhile)."""


@dataclass(frozen=True, slots=True)
class Example:
    """One occurrence: what happened, and the rows that prove it."""

    statement: str
    rows: tuple[Row, ...] = ()


@dataclass(slots=True)
class Anomaly:
    """All occurrences of one kind at one level."""

    name: str
    level: Level
    count: int = 0
    examples: list[Example] = field(default_factory=list)


class Findings:
    """Collects occurrences; keeps the count of all and the rows of the first few."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Level], Anomaly] = {}

    def add(
        self, name: str, statement: str, *rows: Row, level: Level = Level.FAIL, count: int = 1
    ) -> None:
        anomaly = self._found.setdefault((name, level), Anomaly(name, level))
        anomaly.count += count
        if len(anomaly.examples) < EXAMPLES_MAX:
            anomaly.examples.append(Example(statement, rows))

    def anomalies(self) -> list[Anomaly]:
        """Failures first, then by name."""
        order = list(Level)
        return sorted(
            self._found.values(), key=lambda found: (order.index(found.level), found.name)
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a ledger: ok means that no anomaly at level fail was found."""

    ok: bool
    anomalies: list[Anomaly]
    measures: dict[str, Any]

    def count(self, name: str) -> int:
        return sum(found.count for found in self.anomalies if found.name == name)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON-ready values; rows without their absent columns."""
        return {
            "ok": self.ok,
            "anomalies": [_anomaly_dict(found) for found in self.anomalies],
            "measures": self.measures,
        }


def _anomaly_dict(anomaly: Anomaly) -> dict[str, Any]:
    values = asdict(anomaly)
    values["examples"] = [
        {"statement": example.statement, "rows": [row_dict(row) for row in example.rows]}
        for example in anomaly.examples
    ]
    return values


def row_dict(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if value not in (-1, "")}
