"""Rules over trace events: loss is a missing arrow, a wrong order is an arrow too early."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from chronik.audit.diagnosis import CERTAIN, LIKELY, Cause, Diagnosis, Evidence, conclude
from chronik.model.errors import ErrorCode
from chronik.trace.events import EventKind, TraceEvent

FROZEN_NS = 5_000_000_000
ACKS_ALL = -1
EVIDENCE_MAX = 6
Place = tuple[str, int]
Numbered = tuple[int, TraceEvent]
"""An event and its place in the directory, which is its evidence."""


class Traces:
    """The events of a directory by kind and partition, in the order in which they were written."""

    def __init__(self, found: Iterable[TraceEvent], name: str) -> None:
        self.name = name
        self.by_kind: dict[int, list[Numbered]] = defaultdict(list)
        self.run_ends_ns: dict[tuple[int, int], int] = {}
        self._starts: dict[int, list[int]] = defaultdict(list)
        for number, event in enumerate(found, 1):
            self.by_kind[event.kind].append((number, event))
            if event.kind == EventKind.STARTED:
                self._starts[event.node].append(number)
            self.run_ends_ns[self.run_of(number, event)] = event.mono_ns

    def run_of(self, number: int, event: TraceEvent) -> tuple[int, int]:
        """The node and which of its runs: what a crash cut off did not happen too late."""
        return event.node, bisect_right(self._starts[event.node], number)

    @property
    def crashes(self) -> int:
        starts, stops = self.by_kind[EventKind.STARTED], self.by_kind[EventKind.STOPPED]
        return max(0, len(starts) - len(self._starts) - len(stops))

    def by_place(self, kind: EventKind) -> dict[Place, list[Numbered]]:
        places: dict[Place, list[Numbered]] = defaultdict(list)
        for item in self.by_kind[kind]:
            places[item[1].topic or "", _number(item[1].partition)].append(item)
        return places

    def evidence(self, items: Iterable[Numbered]) -> list[Evidence]:
        return [Evidence(self.name, number, _text(event)) for number, event in items][:EVIDENCE_MAX]

    @property
    def complete(self) -> bool:
        """Nothing was dropped or expired, so that what is missing was never there."""
        return not self.by_kind[EventKind.DROPPED] and not self.by_kind[EventKind.EXPIRED]


def diagnose_events(found: Iterable[TraceEvent], name: str) -> Diagnosis:
    traces = Traces(found, name)
    causes = [cause for rule in RULES for cause in rule(traces)]
    diagnosis = conclude(causes, [], {})
    if not traces.complete:
        diagnosis.missing.append("events were dropped or expired: absence proves nothing here")
    if traces.crashes:
        said = "a node was killed: the events of its last moments may be missing"
        diagnosis.missing.append(said)
    if traces.complete and not causes and traces.by_kind:
        diagnosis.missing.append("every batch that was acknowledged has its arrows, in order")
    return diagnosis


def offset_assigned_twice(traces: Traces) -> Iterator[Cause]:
    """Overlapping ranges in one leader epoch; cuts of the log (KIP-101) make their reuse right."""
    cuts = traces.by_place(EventKind.TRUNCATED)
    for place, appended in traces.by_place(EventKind.APPENDED).items():
        epochs: dict[int, list[Numbered]] = defaultdict(list)
        for item in appended:
            epochs[_number(item[1].leader_epoch)].append(item)
        for batches in epochs.values():
            for one, other in _overlaps(batches):
                if not _cut_between(cuts.get(place, []), one, other):
                    said = f"{place[0]}-{place[1]}: two batches hold offset {other[1].base_offset}"
                    shown = traces.evidence((one, other))
                    yield Cause("offset-assigned-twice", CERTAIN, said, shown)


def _overlaps(batches: list[Numbered]) -> Iterator[tuple[Numbered, Numbered]]:
    """Each batch that begins before the furthest end so far, with the batch that holds that end."""
    ordered = sorted(batches, key=lambda item: (_number(item[1].base_offset), item[0]))
    furthest: Numbered | None = None
    for item in ordered:
        if furthest and _number(item[1].base_offset) <= _number(furthest[1].last_offset):
            yield min(furthest, item), max(furthest, item)
        if furthest is None or _number(item[1].last_offset) > _number(furthest[1].last_offset):
            furthest = item


def _cut_between(cuts: list[Numbered], one: Numbered, other: Numbered) -> bool:
    return any(
        one[0] < number < other[0] and _number(cut.log_end) <= _number(other[1].base_offset)
        for number, cut in cuts
    )


def watermark_regression(traces: Traces) -> Iterator[Cause]:
    for place, moved in traces.by_place(EventKind.WATERMARK).items():
        last: dict[int, Numbered] = {}
        for item in moved:
            before = last.get(item[1].node)
            now = _number(item[1].high_watermark)
            if before and now < (was := _number(before[1].high_watermark)):
                said = f"{place[0]}-{place[1]} at node {item[1].node}: {was}, then {now}"
                yield Cause("watermark-regression", CERTAIN, said, traces.evidence((before, item)))
            last[item[1].node] = item


def ack_without_append(traces: Traces) -> Iterator[Cause]:
    """An answer without an error, for offsets that no append gave."""
    if not traces.complete:
        return
    appended = traces.by_place(EventKind.APPENDED)
    for place, acked in traces.by_place(EventKind.ACKED).items():
        bases = {item[1].base_offset for item in appended.get(place, [])}
        wrong = [
            item for item in acked if not _failed(item[1]) and item[1].base_offset not in bases
        ]
        wrong = [item for item in wrong if item[1].base_offset is not None]
        if wrong:
            said = f"{place[0]}-{place[1]}: {len(wrong)} acks for batches that were never appended"
            yield Cause("ack-without-append", CERTAIN, said, traces.evidence(wrong))


def ack_before_fsync(traces: Traces) -> Iterator[Cause]:
    """Only where the node syncs at all: with durability `os` there is no such arrow."""
    yield from _ack_before(traces, EventKind.FSYNCED, "log_end", "ack-before-fsync")


def ack_before_replication(traces: Traces) -> Iterator[Cause]:
    """acks=all before the high watermark had passed the batch."""
    name = "ack-before-replication"
    yield from _ack_before(traces, EventKind.WATERMARK, "high_watermark", name, acks=ACKS_ALL)


def _ack_before(
    traces: Traces, kind: EventKind, field: str, name: str, *, acks: int | None = None
) -> Iterator[Cause]:
    moved = traces.by_place(kind)
    for place, acked in traces.by_place(EventKind.ACKED).items():
        reached = _reached(moved.get(place, []), field)
        lasts = _last_offsets(traces, place)
        early = [
            (number, event)
            for number, event in acked
            if not _failed(event)
            and (event.acks == acks if acks is not None else event.acks != 0)
            and event.node in reached
            and (last := lasts.get(event.base_offset)) is not None
            and _level_at(reached[event.node], event.mono_ns) <= last
        ]
        if early:
            said = f"{place[0]}-{place[1]}: {len(early)} acks before {field} had passed the batch"
            yield Cause(name, CERTAIN, said, traces.evidence(early))


def _last_offsets(traces: Traces, place: Place) -> dict[int | None, int]:
    """Base offset to last offset of the batches of a partition: an ack names its base only."""
    appended = traces.by_place(EventKind.APPENDED).get(place, [])
    return {event.base_offset: _number(event.last_offset) for _, event in appended}


Levels = tuple[list[int], list[int]]


def _reached(moved: list[Numbered], field: str) -> dict[int, Levels]:
    """Per node, the moments and the highest level so far at each."""
    reached: dict[int, Levels] = {}
    for _, event in sorted(moved, key=lambda item: item[1].mono_ns):
        moments, levels = reached.setdefault(event.node, ([], []))
        moments.append(event.mono_ns)
        levels.append(max(_number(getattr(event, field)), levels[-1] if levels else 0))
    return reached


def _level_at(levels: Levels, mono_ns: int) -> int:
    at = bisect_right(levels[0], mono_ns) - 1
    return levels[1][at] if at >= 0 else 0


def watermark_not_advancing(traces: Traces) -> Iterator[Cause]:
    """Appends went on for long behind the last move of the watermark."""
    moved = traces.by_place(EventKind.WATERMARK)
    for place, appended in traces.by_place(EventKind.APPENDED).items():
        node = appended[-1][1].node
        moves = [item for item in moved.get(place, []) if item[1].node == node]
        since = moves[-1][1].mono_ns if moves else appended[0][1].mono_ns
        level = _number(moves[-1][1].high_watermark) if moves else 0
        behind = [item for item in appended if item[1].node == node]
        waiting = [item for item in behind if _number(item[1].last_offset) >= level]
        if waiting and waiting[-1][1].mono_ns - since >= FROZEN_NS:
            said = f"{place[0]}-{place[1]}: {len(waiting)} batches behind the watermark {level}"
            shown = traces.evidence([*moves[-1:], *waiting])
            yield Cause("watermark-not-advancing", LIKELY, said, shown)


def fetch_hanging(traces: Traces) -> Iterator[Cause]:
    """Data was there for a fetch, and nothing was handed to its socket."""
    if not traces.complete:
        return
    served = Counter(_request(event) for _, event in traces.by_kind[EventKind.FETCH_SERVED])
    found = Counter(_request(event) for _, event in traces.by_kind[EventKind.FETCH_DATA])
    hanging = [
        item
        for item in traces.by_kind[EventKind.FETCH_DATA]
        if found[_request(item[1])] > served[_request(item[1])]
        and traces.run_ends_ns[traces.run_of(*item)] - item[1].mono_ns >= FROZEN_NS
    ]
    if hanging:
        said = f"{len(hanging)} fetches found data and were never answered"
        yield Cause("fetch-hanging", LIKELY, said, traces.evidence(hanging))


def leader_rejections(traces: Traces) -> Iterator[Cause]:
    refused = [
        item
        for item in traces.by_kind[EventKind.REJECTED]
        if item[1].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    if refused:
        received = Counter(event.node for _, event in traces.by_kind[EventKind.RECEIVED])
        nodes = Counter(event.node for _, event in refused)
        per_node = ", ".join(f"{n} of {received[node]} at node {node}" for node, n in nodes.items())
        said = f"{len(refused)} requests were rejected by nodes that do not lead ({per_node})"
        yield Cause("leader-rejections", LIKELY, said, traces.evidence(refused))


def _request(event: TraceEvent) -> tuple[object, ...]:
    asked = (event.client_id, event.connection_id, event.correlation_id)
    return (event.node, *asked, event.topic, event.partition, event.base_offset)


def _failed(event: TraceEvent) -> bool:
    return bool(event.error_code)


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _text(event: TraceEvent) -> str:
    named = event._asdict()
    shown = [
        f"{name}={named[name]}" for name in named if named[name] is not None and name != "kind"
    ]
    return f"{EventKind(event.kind).name} {' '.join(shown)}"


RULES = (
    offset_assigned_twice,
    watermark_regression,
    ack_without_append,
    ack_before_fsync,
    ack_before_replication,
    watermark_not_advancing,
    fetch_hanging,
    leader_rejections,
)
