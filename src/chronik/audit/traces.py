"""The trace events of a node, or of all nodes of a cluster, indexed for the rules."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from chronik.audit.diagnosis import Evidence
from chronik.trace.events import EventKind, TraceEvent

FROZEN_NS = 5_000_000_000
"""What stands still for this long is not just slow (the figure of the seed notes)."""
EVIDENCE_MAX = 6
Place = tuple[str, int]
Numbered = tuple[int, TraceEvent]
"""An event and its place in the directory, which is its evidence."""
Levels = tuple[list[int], list[int]]
"""Moments, and the highest level so far at each."""


class Traces:
    """Events by kind and partition, in the order in which they were written."""

    def __init__(self, found: Iterable[TraceEvent], name: str, frozen_ns: int = FROZEN_NS) -> None:
        self.name = name
        self.frozen_ns = frozen_ns
        self.by_kind: dict[int, list[Numbered]] = defaultdict(list)
        self.run_ends_ns: dict[tuple[int, int], int] = {}
        self._starts: dict[int, list[int]] = defaultdict(list)
        self._places: dict[int, dict[Place, list[Numbered]]] = {}
        for line, event in enumerate(found, 1):
            self.by_kind[event.kind].append((line, event))
            if event.kind == EventKind.STARTED:
                self._starts[event.node].append(line)
            self.run_ends_ns[self.run_of(line, event)] = event.mono_ns

    def run_of(self, line: int, event: TraceEvent) -> tuple[int, int]:
        """The node and which of its runs: what a crash cut off did not happen too late."""
        return event.node, bisect_right(self._starts[event.node], line)

    @property
    def crashes(self) -> int:
        starts, stops = self.by_kind[EventKind.STARTED], self.by_kind[EventKind.STOPPED]
        return max(0, len(starts) - len(self._starts) - len(stops))

    def by_place(self, kind: EventKind) -> dict[Place, list[Numbered]]:
        places = self._places.get(kind)
        if places is None:
            places = self._places[kind] = defaultdict(list)
            for item in self.by_kind[kind]:
                places[place_of(item[1])].append(item)
        return places

    def evidence(self, items: Iterable[Numbered]) -> list[Evidence]:
        shown = list(items)[:EVIDENCE_MAX]
        return [Evidence(self.name, line, text_of(event)) for line, event in shown]

    @property
    def complete(self) -> bool:
        """Nothing was dropped or expired, so that what is missing was never there."""
        return not self.by_kind[EventKind.DROPPED] and not self.by_kind[EventKind.EXPIRED]


def place_of(event: TraceEvent) -> Place:
    return event.topic or "", number(event.partition)


def number(value: int | None) -> int:
    return -1 if value is None else value


def failed(event: TraceEvent) -> bool:
    return bool(event.error_code)


def request_of(event: TraceEvent) -> tuple[object, ...]:
    """Names one fetch of one partition."""
    asked = (event.client_id, event.connection_id, event.correlation_id)
    return (event.node, *asked, event.topic, event.partition, event.base_offset)


def reached(moved: Iterable[Numbered], field: str) -> dict[int, Levels]:
    """Per node, the moments and the highest level so far at each."""
    found: dict[int, Levels] = {}
    for _, event in sorted(moved, key=lambda item: item[1].mono_ns):
        moments, levels = found.setdefault(event.node, ([], []))
        moments.append(event.mono_ns)
        levels.append(max(number(getattr(event, field)), levels[-1] if levels else 0))
    return found


def level_at(levels: Levels, mono_ns: int) -> int:
    at = bisect_right(levels[0], mono_ns) - 1
    return levels[1][at] if at >= 0 else 0


def moment_above(levels: Levels, offset: int) -> int | None:
    """When the level first passed the offset; None if it never did."""
    at = bisect_right(levels[1], offset)
    return levels[0][at] if at < len(levels[0]) else None


def text_of(event: TraceEvent) -> str:
    named = event._asdict()
    shown = [
        f"{name}={named[name]}" for name in named if named[name] is not None and name != "kind"
    ]
    return f"{EventKind(event.kind).name} {' '.join(shown)}"
