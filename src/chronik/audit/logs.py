"""Broker logs as text, and notes that quote them: lines in, events out. Reading is lenient.

Markers are looked for anywhere in a line, so prefixes, emoji and broken encodings do not matter.
In a note (Markdown) each fenced block is an *excerpt*: order means something only inside it, and a
block that is introduced as an example or an expectation is not evidence.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chronik.audit.diagnosis import Evidence

PRODUCE, UPDATE, REPLICATE = "produce", "watermark-update", "watermark-event"
FETCH_START, WATERMARK, DATA, RAW = "fetch-start", "fetch-watermark", "fetch-data", "fetch-raw"
SUCCESS, NO_DATA = "fetch-success", "fetch-empty"
REJECTED, REJECTION_COUNT = "rejected", "rejection-count"

_MARKERS = (
    (PRODUCE, re.compile(r"PRODUCE REQUEST\b")),
    (UPDATE, re.compile(r"WATERMARK UPDATE\b")),
    (REPLICATE, re.compile(r"Replicating HighWatermarkUpdated\b")),
    (FETCH_START, re.compile(r"FETCH START\b")),
    (WATERMARK, re.compile(r"\bWATERMARK:")),
    (DATA, re.compile(r"DATA AVAILABLE\b")),
    (RAW, re.compile(r"FETCH RAW\b")),
    (SUCCESS, re.compile(r"FETCH SUCCESS\b")),
    (NO_DATA, re.compile(r"NO DATA\b")),
    (REJECTED, re.compile(r"not leader|NOT_LEADER", re.IGNORECASE)),
)
_NEEDED = {
    PRODUCE: {"partition", "base_offset", "last_offset"},
    UPDATE: {"partition", "old", "new"},
    REPLICATE: {"partition", "new"},
    WATERMARK: {"partition", "high_watermark"},
    NO_DATA: {"partition", "high_watermark"},
    DATA: {"partition"},
    RAW: {"partition"},
    SUCCESS: {"partition"},
    FETCH_START: {"partition"},
    REJECTED: set[str](),
}
_NUMBER = re.compile(r"\b(\w+)=(-?\d+)\b")
_TOPIC = re.compile(r"\btopic=([\w.-]+)")
_TOPIC_PARTITION = re.compile(r"(?:for|Updated:)\s+([\w.-]+)-(\d+)(?:\s*=>\s*(\d+))?")
_TIME = re.compile(r"\b(\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
_LOG_PREFIX = re.compile(r"^\W*(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|\S+\.log:)")
_COUNT = re.compile(r"(\d+)\s+\W?not leader\W*\s*rejections? out of \W?(\d+)", re.IGNORECASE)
_FENCE = re.compile(r"^\s*```")
_IMAGINED = re.compile(
    r"\b(expected|example|pattern \d|predicted|should|after fix)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One line that says something: its kind, its numbers, where it stands."""

    kind: str
    evidence: Evidence
    excerpt: int
    topic: str
    numbers: dict[str, int]
    second: float | None

    @property
    def partition(self) -> int:
        return self.numbers.get("partition", -1)


def read_log(path: Path) -> list[LogEvent]:
    """The events of one file; bytes that are no text are replaced, never refused."""
    return list(parse(path.name, path.read_text(encoding="utf-8", errors="replace")))


def parse(name: str, text: str) -> Iterator[LogEvent]:
    lines = text.splitlines()
    is_note = any(_FENCE.match(line) for line in lines)
    excerpt, inside, imagined, heading = 0, False, False, ""
    for number, line in enumerate(lines, 1):
        if _FENCE.match(line):
            inside = not inside
            excerpt += inside
            imagined = bool(_IMAGINED.search(heading))
        elif not (inside and imagined):
            event = _event(Evidence(name, number, line.strip()), excerpt)
            if event and _counts(event, is_note=is_note, quoted=inside):
                yield event
        if not inside and line.strip() and not _FENCE.match(line):
            heading = line


def _counts(event: LogEvent, *, is_note: bool, quoted: bool) -> bool:
    """In a note, a sentence about a log line is not a log line; a count that it states is."""
    if not is_note or event.kind == REJECTION_COUNT:
        return True
    if event.kind == REJECTED:
        return quoted and bool(_LOG_PREFIX.match(event.evidence.text))
    return quoted


def _event(evidence: Evidence, excerpt: int) -> LogEvent | None:
    line = evidence.text
    count = _COUNT.search(line)
    if count:
        numbers = {"rejected": int(count[1]), "requests": int(count[2])}
        return LogEvent(REJECTION_COUNT, evidence, excerpt, "", numbers, None)
    for kind, marker in _MARKERS:
        if marker.search(line):
            numbers = {name: int(value) for name, value in _NUMBER.findall(line)}
            topic = _place(line, numbers)
            if _NEEDED[kind] <= numbers.keys():
                return LogEvent(kind, evidence, excerpt, topic, numbers, _second(line))
            return None
    return None


def _place(line: str, numbers: dict[str, int]) -> str:
    """The topic; `topic-partition => offset` is the other way that a line names its place."""
    named = _TOPIC.search(line)
    joined = _TOPIC_PARTITION.search(line)
    if joined and "partition" not in numbers:
        numbers["partition"] = int(joined[2])
        if joined[3]:
            numbers["new"] = int(joined[3])
        return joined[1]
    return named[1] if named else ""


def _second(line: str) -> float | None:
    found = _TIME.search(line)
    if not found:
        return None
    hours, minutes, seconds, fraction = found.groups()
    return int(hours) * 3600 + int(minutes) * 60 + float(f"{seconds}.{fraction or 0}")
