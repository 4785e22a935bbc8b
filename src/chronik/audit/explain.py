"""All evidence together: ledgers, traces and the replicas' files, and the cause they show."""

from collections.abc import Iterator, Sequence

from chronik.audit.diagnosis import CERTAIN, Cause, Diagnosis, Evidence, conclude
from chronik.audit.history import History
from chronik.audit.replicas import Replicas, damage_causes
from chronik.audit.rows import Kind, Row, Value, value_of
from chronik.audit.trace_rules import diagnose_events
from chronik.audit.traces import FROZEN_NS
from chronik.trace.events import EventKind, TraceEvent

EVIDENCE_MAX = 6


def explain(
    rows: Sequence[Row],
    events: Sequence[TraceEvent],
    replicas: Replicas,
    frozen_ns: int = FROZEN_NS,
) -> Diagnosis:
    """The causes that any of the three shows, the one that explains most first."""
    traced = diagnose_events(events, "traces", frozen_ns)
    found = [*traced.causes, *traced.consequences, *damage_causes(replicas.damaged)]
    found += committed_not_served(rows, replicas.rows)
    diagnosis = conclude(found, [], {})
    diagnosis.missing = traced.missing
    return diagnosis


def watermark_rows(events: Sequence[TraceEvent]) -> list[Row]:
    """What nodes say of their watermarks, for the verdict; each run of a node is a process."""
    runs: dict[int, int] = {}
    leading: dict[tuple[object, ...], bool] = {}
    rows = []
    for event in events:
        if event.kind == EventKind.STARTED:
            runs[event.node] = runs.get(event.node, 0) + 1
        place = (event.node, event.topic, event.partition)
        if event.kind in (EventKind.APPENDED, EventKind.FOLLOWER_APPENDED):
            leading[place] = event.kind == EventKind.APPENDED
        if event.kind == EventKind.WATERMARK:
            rows.append(_watermark_row(event, runs.get(event.node, 0), leading.get(place, False)))
    return rows


def _watermark_row(event: TraceEvent, run: int, leads: bool) -> Row:
    return Row(
        Kind.WATERMARK,
        f"node {event.node} run {run}",
        begin_ns=event.mono_ns,
        end_ns=event.mono_ns,
        topic=event.topic or "",
        partition=-1 if event.partition is None else event.partition,
        offset=-1 if event.high_watermark is None else event.high_watermark,
        detail="" if leads else "follower",
    )


def committed_not_served(rows: Sequence[Row], stored: Sequence[Row]) -> Iterator[Cause]:
    """Values below the end offset that every replica has on disk and no reader was given."""
    history = History(rows)
    replicas = {row.process for row in stored}
    holders: dict[Value, set[str]] = {}
    for row in stored:
        holders.setdefault(value_of(row), set()).add(row.process)
    missed = [
        send
        for value, send in history.sends.items()
        if value not in history.reads
        and 0 <= send.offset < (history.logs[history.partition_of_value(value, send)].end or 0)
        and replicas
        and holders.get(value) == replicas
    ]
    if missed:
        said = f"{len(missed)} values are in the log of every replica and were given to no reader"
        lines = [
            Evidence("ledger", send.sequence, f"{send.topic}-{send.partition} offset {send.offset}")
            for send in missed[:EVIDENCE_MAX]
        ]
        yield Cause("committed-not-served", CERTAIN, said, lines)
