"""The shape of a diagnosis: causes with the lines that show them, and what they do not show."""

from dataclasses import asdict, dataclass, field
from typing import Any

NOT_ENOUGH_EVIDENCE = "not-enough-evidence"

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"
CONFIDENCES = (CERTAIN, LIKELY, POSSIBLE)

RANKS = (
    "offset-assigned-twice",
    "partition-state-twice",
    "fsync-lost",
    "ack-without-append",
    "ack-before-fsync",
    "ack-before-replication",
    "served-above-watermark",
    "duplicate-append",
    "appended-out-of-sequence",
    "damaged-on-disk",
    "follower-refuses-data",
    "watermark-regression",
    "watermark-not-advancing",
    "watermark-events-partial",
    "fetch-hanging",
    "one-partition-stalled",
    "committed-not-served",
    "leader-rejections",
)
"""What can explain more stands first: offsets before watermarks before fetches before routing."""

_GIVEN_TWICE = ("offset-assigned-twice", "partition-state-twice")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line of a log (or one trace event, by its place in the directory)."""

    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    """One explanation, how sure it is, and the lines it stands on."""

    name: str
    confidence: str
    statement: str
    evidence: list[Evidence]


@dataclass(slots=True)
class Diagnosis:
    """The first cause explains; consequences follow from it; what was ruled out cannot be it."""

    causes: list[Cause] = field(default_factory=list)
    consequences: list[Cause] = field(default_factory=list)
    ruled_out: list[Cause] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)

    @property
    def cause(self) -> str:
        return self.causes[0].name if self.causes else NOT_ENOUGH_EVIDENCE

    def to_dict(self) -> dict[str, Any]:
        return {"cause": self.cause, **asdict(self)}


def _file(cause: Cause) -> str:
    return cause.evidence[0].file if cause.evidence else ""


def conclude(found: list[Cause], ruled_out: list[Cause], events: dict[str, int]) -> Diagnosis:
    """Orders what was found. Offsets given twice explain a watermark that moved back."""
    ordered = sorted(
        found, key=lambda one: (RANKS.index(one.name), CONFIDENCES.index(one.confidence))
    )
    twice = {_file(one) for one in ordered if one.name in _GIVEN_TWICE}
    follows = [one for one in ordered if one.name == "watermark-regression" and _file(one) in twice]
    causes = [one for one in ordered if one not in follows]
    return Diagnosis(causes, follows, ruled_out, events=events)
