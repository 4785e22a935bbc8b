"""Rules over trace events of the way out: watermarks, fetches, replication, leaders."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from chronik.audit.diagnosis import CERTAIN, LIKELY, Cause
from chronik.audit.traces import (
    Levels,
    Numbered,
    Place,
    Traces,
    moment_above,
    number,
    place_of,
    reached,
    request_of,
)
from chronik.model.errors import ErrorCode
from chronik.trace.events import EventKind, TraceEvent

SERVED_AGAIN_MIN = 3
"""A follower that asks for the same batch so often does not take it."""


def watermark_regression(traces: Traces) -> Iterator[Cause]:
    for place, moved in traces.by_place(EventKind.WATERMARK).items():
        last: dict[tuple[int, int], Numbered] = {}
        for item in moved:
            run = traces.run_of(*item)
            before = last.get(run)
            now = number(item[1].high_watermark)
            if before and now < (was := number(before[1].high_watermark)):
                said = f"{place[0]}-{place[1]} at node {item[1].node}: {was}, then {now}"
                yield Cause("watermark-regression", CERTAIN, said, traces.evidence((before, item)))
            last[run] = item


def watermark_not_advancing(traces: Traces) -> Iterator[Cause]:
    """Batches waited long until the watermark passed them, or wait still."""
    for place, appended in traces.by_place(EventKind.APPENDED).items():
        levels = reached(traces.by_place(EventKind.WATERMARK).get(place, []), "high_watermark")
        waiting = [
            item
            for item in appended
            if _waited_ns(traces, item, levels.get(item[1].node)) >= traces.frozen_ns
        ]
        if waiting:
            moves = [
                item
                for item in traces.by_place(EventKind.WATERMARK).get(place, [])
                if item[1].node == waiting[0][1].node
            ]
            longest = max(_waited_ns(traces, one, levels.get(one[1].node)) for one in waiting)
            said = f"{place[0]}-{place[1]}: {len(waiting)} batches behind the watermark"
            said += f", the longest for {longest / 1e9:.1f} s"
            shown = traces.evidence([*moves[-1:], *waiting])
            yield Cause("watermark-not-advancing", LIKELY, said, shown)


def _waited_ns(traces: Traces, appended: Numbered, levels: Levels | None) -> int:
    event = appended[1]
    passed = moment_above(levels, number(event.last_offset)) if levels else None
    end = traces.run_ends_ns[traces.run_of(*appended)] if passed is None else passed
    return end - event.mono_ns


def served_above_watermark(traces: Traces) -> Iterator[Cause]:
    """A consumer was given data from a place that was not committed at that moment."""
    for place, found in _committed_so_far(traces).items():
        said = f"{place[0]}-{place[1]}: {len(found)} fetches were served above the watermark"
        yield Cause("served-above-watermark", CERTAIN, said, traces.evidence(found))


def _committed_so_far(traces: Traces) -> dict[Place, list[Numbered]]:
    """Fetches by consumers that found data at or above what their node had as committed."""
    kinds = (EventKind.WATERMARK, EventKind.APPENDED, EventKind.FETCH_DATA)
    known: dict[tuple[object, ...], int] = {}
    early: dict[Place, list[Numbered]] = defaultdict(list)
    for line, event in sorted(item for kind in kinds for item in traces.by_kind[kind]):
        place = place_of(event)
        where = (place, traces.run_of(line, event))
        if event.kind != EventKind.FETCH_DATA:
            known[where] = max(known.get(where, 0), number(event.high_watermark))
        elif event.peer is None and number(event.base_offset) >= known.get(where, 1 << 62):
            early[place].append((line, event))
    return early


def fetch_hanging(traces: Traces) -> Iterator[Cause]:
    """Data was there for a fetch, and nothing was handed to its socket, or much later."""
    if traces.complete:
        yield from _never_answered(traces)
    yield from _answered_late(traces)


def _never_answered(traces: Traces) -> Iterator[Cause]:
    served = Counter(request_of(event) for _, event in traces.by_kind[EventKind.FETCH_SERVED])
    found = Counter(request_of(event) for _, event in traces.by_kind[EventKind.FETCH_DATA])
    hanging = [
        item
        for item in traces.by_kind[EventKind.FETCH_DATA]
        if found[request_of(item[1])] > served[request_of(item[1])]
        and traces.run_ends_ns[traces.run_of(*item)] - item[1].mono_ns >= traces.frozen_ns
    ]
    if hanging:
        said = f"{len(hanging)} fetches found data and were never answered"
        yield Cause("fetch-hanging", LIKELY, said, traces.evidence(hanging))


def _answered_late(traces: Traces) -> Iterator[Cause]:
    """Only fetches that asked for any byte at all: others may wait for more (fetch.min.bytes)."""
    starts = {
        request_of(event): event
        for _, event in traces.by_kind[EventKind.FETCH_START]
        if event.peer is None and "min_bytes=1 " in f"{event.detail} "
    }
    for place, served in traces.by_place(EventKind.FETCH_SERVED).items():
        levels = reached(traces.by_place(EventKind.WATERMARK).get(place, []), "high_watermark")
        late = [
            item
            for item in served
            if (start := starts.get(request_of(item[1]))) is not None
            and _asleep_ns(start, item[1], levels.get(item[1].node)) >= traces.frozen_ns
        ]
        if late:
            said = f"{place[0]}-{place[1]}: {len(late)} fetches slept on while data was committed"
            yield Cause("fetch-hanging", LIKELY, said, traces.evidence(late))


def _asleep_ns(start: TraceEvent, served: TraceEvent, levels: Levels | None) -> int:
    """How long the fetch went on after data for it was committed."""
    passed = moment_above(levels, number(served.base_offset)) if levels else None
    return 0 if passed is None else served.mono_ns - max(start.mono_ns, passed)


def follower_refuses(traces: Traces) -> Iterator[Cause]:
    """A follower is served the same batch again and again and never appends it."""
    asked: dict[tuple[Place, int, int], list[Numbered]] = defaultdict(list)
    for item in traces.by_kind[EventKind.FETCH_SERVED]:
        if item[1].peer is not None:
            asked[place_of(item[1]), item[1].peer, number(item[1].base_offset)].append(item)
    taken: dict[tuple[Place, int], int] = {}
    for _, event in traces.by_kind[EventKind.FOLLOWER_APPENDED]:
        where = (place_of(event), event.node)
        taken[where] = max(taken.get(where, -1), number(event.base_offset))
    traced = {event.node for _, event in traces.by_kind[EventKind.STARTED]}
    for (place, peer, base), items in asked.items():
        if (
            len(items) >= SERVED_AGAIN_MIN
            and peer in traced
            and taken.get((place, peer), -1) < base
        ):
            said = f"{place[0]}-{place[1]}: node {peer} was sent offset {base} {len(items)} times"
            said += " and appended none of it"
            yield Cause("follower-refuses-data", CERTAIN, said, traces.evidence(items))


def leader_rejections(traces: Traces) -> Iterator[Cause]:
    refused = [
        item
        for item in traces.by_kind[EventKind.REJECTED]
        if item[1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    if refused:
        received = Counter(event.node for _, event in traces.by_kind[EventKind.RECEIVED])
        kinds = (EventKind.ACKED, EventKind.REJECTED)
        answered = Counter(event.node for kind in kinds for _, event in traces.by_kind[kind])
        asked = {node: max(received[node], answered[node]) for node in answered}
        nodes = Counter(event.node for _, event in refused)
        per_node = ", ".join(f"{n} of {asked[node]} at node {node}" for node, n in nodes.items())
        said = f"{len(refused)} requests were rejected by nodes that do not lead ({per_node})"
        yield Cause("leader-rejections", LIKELY, said, traces.evidence(refused))


RULES = (
    watermark_regression,
    served_above_watermark,
    follower_refuses,
    watermark_not_advancing,
    fetch_hanging,
    leader_rejections,
)
