"""How soon the followers know what their leader has committed, from the traces of all nodes.

A move is a WATERMARK event of the node that leads the partition in that epoch. A follower knows of
it with its first WATERMARK event of the same partition at that offset or above: it may skip some.
Nodes are compared by their wall clocks, so on several machines only as exactly as these agree.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from chronik.audit.traces import Place, number, place_of
from chronik.trace.events import EventKind, TraceEvent
from chronik.trace.reader import events, read_table

_KINDS = (
    EventKind.WATERMARK,
    EventKind.ELECTION,
    EventKind.APPENDED,
    EventKind.REPLICATED,
    EventKind.FOLLOWER_APPENDED,
)


class Spread(NamedTuple):
    """What was measured; one delay per move and follower."""

    moves: int
    """Of leaders."""
    delays_ms: dict[int, list[float]]
    """By follower, shortest first."""
    unknown: dict[int, int]
    """By follower: moves that it never knew of, as when it was down or the run ended first."""

    @property
    def all_ms(self) -> list[float]:
        """Of all followers, shortest first."""
        return sorted(one for many in self.delays_ms.values() for one in many)

    def rows(self) -> list[dict[str, float | int | str]]:
        """One per follower, and all of them together."""
        found = [
            _row(f"node {node}", self.delays_ms[node], self.unknown[node]) for node in self.nodes
        ]
        return [*found, _row("all", self.all_ms, sum(self.unknown.values()))]

    @property
    def nodes(self) -> list[int]:
        """Those that followed somebody."""
        return sorted({*self.delays_ms, *self.unknown})


def spread_of(directories: Sequence[Path]) -> Spread:
    """From the trace directories of all nodes."""
    found: list[TraceEvent] = []
    for directory in directories:
        table = read_table(directory)
        wanted = pa.array([int(kind) for kind in _KINDS], table["kind"].type)
        found += events(table.filter(pc.is_in(table["kind"], value_set=wanted)))
    return spread(found)


def spread(found: Iterable[TraceEvent]) -> Spread:
    """From the events of all nodes, in any order."""
    leaders: dict[tuple[Place, int], int] = {}
    replicas: dict[Place, set[int]] = defaultdict(set)
    moved: dict[tuple[Place, int], list[TraceEvent]] = defaultdict(list)
    for event in found:
        if event.topic is None:
            continue  # the election of a controller
        place, epoch = place_of(event), number(event.leader_epoch)
        replicas[place].add(event.node)
        if event.kind == EventKind.WATERMARK:
            moved[place, event.node].append(event)
        elif event.kind == EventKind.ELECTION:
            leaders[place, epoch] = number(event.peer)
        elif event.kind in (EventKind.APPENDED, EventKind.REPLICATED):
            leaders[place, epoch] = event.node
    return _measured(leaders, replicas, moved)


def _measured(
    leaders: dict[tuple[Place, int], int],
    replicas: dict[Place, set[int]],
    moved: dict[tuple[Place, int], list[TraceEvent]],
) -> Spread:
    count = 0
    delays_ms: dict[int, list[float]] = defaultdict(list)
    unknown: dict[int, int] = defaultdict(int)
    known = {where: _levels(events_) for where, events_ in moved.items()}
    for (place, node), events_ in moved.items():
        moves = [e for e in events_ if leaders.get((place, number(e.leader_epoch))) == node]
        count += len(moves)
        for follower in replicas[place] - {node}:
            levels, times = known.get((place, follower), ([], []))
            for move in moves:
                at = bisect_left(levels, number(move.high_watermark))
                if at == len(levels):
                    unknown[follower] += 1
                else:
                    delays_ms[follower].append(max(0.0, (times[at] - move.time_ns) / 1e6))
    for found in delays_ms.values():
        found.sort()
    return Spread(count, dict(delays_ms), defaultdict(int, unknown))


def _levels(found: list[TraceEvent]) -> tuple[list[int], list[int]]:
    """Watermarks that rise, and when each was reached first."""
    levels: list[int] = []
    times: list[int] = []
    for event in sorted(found, key=lambda event: event.time_ns):
        if not levels or number(event.high_watermark) > levels[-1]:
            levels.append(number(event.high_watermark))
            times.append(event.time_ns)
    return levels, times


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The value below which that share lies; 0 where there are none."""
    if not sorted_values:
        return 0.0
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


def _row(who: str, delays_ms: Sequence[float], unknown: int) -> dict[str, float | int | str]:
    return {
        "follower": who,
        "known": len(delays_ms),
        "unknown": unknown,
        "p50_ms": round(percentile(delays_ms, 0.5), 3),
        "p99_ms": round(percentile(delays_ms, 0.99), 3),
        "max_ms": round(delays_ms[-1], 3) if delays_ms else 0.0,
    }
