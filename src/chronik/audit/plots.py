"""What a report draws over time besides the measures: nodes, partitions, faults and elections."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chronik.audit.history import History
from chronik.audit.location import Clock
from chronik.audit.measures import POINTS_MAX
from chronik.audit.rows import Kind, Partition, Row, partition_of, words
from chronik.audit.watermarks import find_stall_spans
from chronik.model.errors import ErrorCode
from chronik.trace.events import EventKind, TraceEvent

PARTITIONS_MAX = 8
"""Lines that a chart still shows apart."""
NODE_CHARTS_MAX = 4
TIMELINE_MAX = 60

Steps = list[tuple[float, float]]
"""Second and level, in the order of time."""
Reads = list[tuple[Partition, int]]
"""Where each value was read first, and when."""

_LOG_ENDS = (EventKind.APPENDED, EventKind.FOLLOWER_APPENDED, EventKind.TRUNCATED)


def plot_data(rows: Iterable[Row], events: Sequence[TraceEvent] = ()) -> dict[str, Any]:
    """JSON-ready; what there is no evidence for is empty."""
    history = History(rows)
    clock = Clock(history)
    topics = {row.topic for row in history.by_kind[Kind.SEND]}
    own = [event for event in events if event.topic is None or event.topic in topics]
    return {
        "progress": progress(first_reads(history), clock),
        "timeline": timeline(history, clock, own),
        "nodes": node_levels(clock, own),
        "rejections": rejections(own),
    }


def first_reads(history: History) -> Reads:
    first = [rows[0] for rows in history.reads.values()]
    return [(partition_of(row), row.end_ns) for row in first if row.end_ns >= 0]


def progress(reads: Reads, clock: Clock, step: int = 1) -> dict[str, Any]:
    """Values read in total, per partition; each stands for so many."""
    counts: dict[Partition, list[float]] = defaultdict(list)
    for key, end_ns in reads:
        counts[key].append(clock.seconds(end_ns))
    named = sorted(counts)[:PARTITIONS_MAX]
    steps: dict[str, Steps] = {
        f"{key.topic}-{key.partition}": [
            (at, step * n) for n, at in enumerate(sorted(counts[key]), 1)
        ]
        for key in named
    }
    return resampled(steps)


def resampled(steps: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """Series on one axis: at each moment the last level that was known then."""
    moments = [at for series in steps.values() for at, _ in series]
    if not moments:
        return {}
    low, high = min(0.0, *moments), max(moments)
    axis = [round(low + (high - low) * n / POINTS_MAX, 3) for n in range(POINTS_MAX)] + [high]
    found = {}
    for name, series in steps.items():
        times = [at for at, _ in series]
        places = [bisect_right(times, at) - 1 for at in axis]
        found[name] = [series[place][1] if place >= 0 else 0 for place in places]
    return {"seconds": axis, "series": found}


def timeline(history: History, clock: Clock, events: Iterable[TraceEvent]) -> list[dict[str, Any]]:
    """Faults, elections and stalls, in the order of time."""
    found = [*_faults(history, clock), *_leaders(history, clock), *_traced(clock, events)]
    for first, last, said in find_stall_spans(history):
        found.append(_entry("stall", clock.seconds(first.end_ns), said, clock.seconds(last.end_ns)))
    return sorted(found, key=lambda entry: entry["s"])[:TIMELINE_MAX]


def _entry(kind: str, at_s: float, what: str, end_s: float | None = None) -> dict[str, Any]:
    return {"kind": kind, "s": at_s, "end_s": at_s if end_s is None else end_s, "what": what}


def _faults(history: History, clock: Clock) -> Iterable[dict[str, Any]]:
    for row in history.by_kind[Kind.FAULT]:
        if row.begin_ns >= 0:
            end_s = clock.seconds(max(row.begin_ns, row.end_ns))
            yield _entry("fault", clock.seconds(row.begin_ns), row.detail, end_s)


def _leaders(history: History, clock: Clock) -> Iterable[dict[str, Any]]:
    """Changes only: who leads at the start is no election."""
    known: dict[Partition, str] = {}
    for row in history.by_kind[Kind.EPOCH]:
        key, leader = Partition(row.topic, row.partition), words(row.detail).get("leader", "")
        if leader and key in known and known[key] != leader:
            said = f"{row.topic}-{row.partition}: leader {known[key]} to {leader}"
            yield _entry("election", clock.seconds(row.begin_ns), said)
        known[key] = leader or known.get(key, "")


def _traced(clock: Clock, events: Iterable[TraceEvent]) -> Iterable[dict[str, Any]]:
    """Who appends as a leader leads: the first append of another node shows the election."""
    leaders: dict[tuple[str | None, int | None], int] = {}
    for event in events:
        at_s = clock.seconds(clock.monotonic_ns(event.time_ns, event.mono_ns))
        if event.kind == EventKind.APPENDED:
            key = (event.topic, event.partition)
            before = leaders.get(key, event.node)
            leaders[key] = event.node
            if before != event.node:
                said = f"{event.topic}-{event.partition}: node {event.node} leads, epoch"
                yield _entry("election", at_s, f"{said} {event.leader_epoch}, after {before}")
        elif event.kind in (EventKind.STARTED, EventKind.STOPPED):
            word = EventKind(event.kind).name.lower()
            yield _entry("node", at_s, f"node {event.node} {word}")


def node_levels(clock: Clock, events: Iterable[TraceEvent]) -> dict[str, Any]:
    """Per partition: the high watermark and the log end of each node."""
    steps: dict[str, dict[str, Steps]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        named = _level(event)
        if named and event.topic is not None:
            at_s = clock.seconds(clock.monotonic_ns(event.time_ns, event.mono_ns))
            what, level = named
            key = f"{event.topic}-{event.partition}"
            steps[key][f"node {event.node} {what}"].append((at_s, level))
    shown = sorted(steps)[:NODE_CHARTS_MAX]
    return {key: resampled(dict(sorted(steps[key].items()))) for key in shown}


def _level(event: TraceEvent) -> tuple[str, int] | None:
    if event.kind == EventKind.WATERMARK and event.high_watermark is not None:
        return "watermark", event.high_watermark
    if event.kind in _LOG_ENDS and event.log_end is not None:
        return "log end", event.log_end
    return None


def rejections(events: Iterable[TraceEvent]) -> dict[str, dict[str, int]]:
    """Per node: how often it refused with which error."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for event in events:
        if event.kind == EventKind.REJECTED:
            code = event.error_code or 0
            known = code in ErrorCode.__members__.values()
            found[f"node {event.node}"][ErrorCode(code).name if known else str(code)] += 1
    return {node: dict(counter.most_common()) for node, counter in sorted(found.items())}
