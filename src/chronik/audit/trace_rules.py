"""Rules over trace events: loss is a missing arrow, a wrong order is an arrow too early.

Here the acks and the conclusion; `append_rules.py` has the way in, `serving_rules.py` the way out.
"""

from collections.abc import Iterable, Iterator

from chronik.audit import append_rules, serving_rules
from chronik.audit.diagnosis import CERTAIN, Cause, Diagnosis, conclude
from chronik.audit.traces import FROZEN_NS, Place, Traces, failed, level_at, number, reached
from chronik.trace.events import EventKind, TraceEvent

ACKS_ALL = -1


def diagnose_events(
    found: Iterable[TraceEvent], name: str, frozen_ns: int = FROZEN_NS
) -> Diagnosis:
    """`frozen_ns`: what stands still for so long is taken for a cause."""
    traces = Traces(found, name, frozen_ns)
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


def ack_without_append(traces: Traces) -> Iterator[Cause]:
    """An answer without an error, for offsets that no append gave."""
    if not traces.complete:
        return
    appended = traces.by_place(EventKind.APPENDED)
    for place, acked in traces.by_place(EventKind.ACKED).items():
        bases = {item[1].base_offset for item in appended.get(place, [])}
        wrong = [item for item in acked if not failed(item[1]) and item[1].base_offset not in bases]
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
        levels = reached(moved.get(place, []), field)
        lasts = _last_offsets(traces, place)
        early = [
            (line, event)
            for line, event in acked
            if not failed(event)
            and (event.acks == acks if acks is not None else event.acks != 0)
            and event.node in levels
            and (last := _last_offset(event, lasts)) is not None
            and level_at(levels[event.node], event.mono_ns) <= last
        ]
        if early:
            said = f"{place[0]}-{place[1]}: {len(early)} acks before {field} had passed the batch"
            yield Cause(name, CERTAIN, said, traces.evidence(early))


def _last_offset(event: TraceEvent, lasts: dict[tuple[int, int | None], int]) -> int | None:
    """Of a batch that the node itself appended: as its ack says, else as the append said."""
    appended = lasts.get((event.node, event.base_offset))
    return appended if appended is None or number(event.last_offset) < 0 else event.last_offset


def _last_offsets(traces: Traces, place: Place) -> dict[tuple[int, int | None], int]:
    """Node and base offset to last offset of its batches: what it forwarded others answer for."""
    appended = traces.by_place(EventKind.APPENDED).get(place, [])
    return {(event.node, event.base_offset): number(event.last_offset) for _, event in appended}


RULES = (
    *append_rules.RULES,
    ack_without_append,
    ack_before_fsync,
    ack_before_replication,
    *serving_rules.RULES,
)
