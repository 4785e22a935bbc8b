"""Anomalies of time: epochs, ends and watermarks that go back, and stalls."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise

from chronik.audit.anomaly import STALL_NS, Findings, Policy
from chronik.audit.history import History
from chronik.audit.rows import Kind, Outcome, Partition, Row, partition_of

Place = tuple[str, Partition]


def find_epoch_regressions(history: History, findings: Findings) -> None:
    """The leader epoch goes back: in what a consumer was told, or along a log."""
    told: dict[Place, Row] = {}
    for row in history.by_kind[Kind.EPOCH]:
        place = (row.process, partition_of(row))
        before = told.get(place)
        if before and row.epoch < before.epoch:
            said = f"{_where(row)}: {row.process} saw epoch {before.epoch}, then {row.epoch}"
            findings.add("epoch-regression", said, before, row)
        told[place] = row
    for log in history.logs.values():
        read = [row for _, row in sorted(log.read.items()) if row.epoch >= 0]
        for before, after in pairwise(read):
            if after.epoch < before.epoch:
                said = (
                    f"{_where(after)}: epoch {after.epoch} at {after.offset}, behind {before.epoch}"
                )
                findings.add("epoch-regression", said, before, after)


def find_end_regressions(history: History, findings: Findings) -> None:
    """A consumer saw the end of a log go back."""
    for rows in _samples(history).values():
        known = [row for row in rows if row.offset >= 0]
        for before, after in pairwise(known):
            if after.offset < before.offset:
                said = f"{_where(after)}: the end went from {before.offset} to {after.offset}"
                findings.add("truncation", said, before, after)


def find_watermark_regressions(history: History, findings: Findings) -> None:
    """Per node at any time; across nodes between what leaders said."""
    per_node: dict[Place, Row] = {}
    highest: dict[Partition, Row] = {}
    for row in sorted(history.by_kind[Kind.WATERMARK], key=lambda row: row.begin_ns):
        place = (row.process, partition_of(row))
        before = per_node.get(place)
        per_node[place] = row
        if before is None or row.offset >= before.offset:
            before = highest.get(place[1]) if row.detail != "follower" else None
        if before and row.offset < before.offset:
            first = f"{before.offset} at {before.process}"
            said = f"{_where(row)}: {first}, then {row.offset} at {row.process}"
            findings.add("watermark-regression", said, before, row)
        top = highest.get(place[1])
        if row.detail != "follower" and (top is None or row.offset > top.offset):
            highest[place[1]] = row


def find_stalls(history: History, findings: Findings, policy: Policy) -> None:
    """Readable data and no progress; or acked data that never becomes readable."""
    for first, last, said in find_stall_spans(history, policy.stall_ns):
        findings.add("stall", said, first, last, level=policy.stall_level)


def find_stall_spans(history: History, stall_ns: int = STALL_NS) -> Iterator[tuple[Row, Row, str]]:
    """The first and the last sample of each stall, and its pattern."""
    samples = _samples(history)
    acks = _acked_ends(history)
    for (consumer, partition), rows in samples.items():
        for _, group in groupby(rows, key=lambda row: row.position):
            stuck = list(group)
            pattern = _pattern(stuck, acks.get(partition, []), stall_ns)
            if not pattern:
                continue
            first, last = stuck[0], stuck[-1]
            if pattern == "fetch hanging" and _others_moved(samples, consumer, partition, first):
                pattern = "one partition stalled"
            seconds = (last.end_ns - first.end_ns) / 1e9
            said = f"{_where(first)}: {consumer} at {first.position} for {seconds:.1f} s: {pattern}"
            yield first, last, said


def _pattern(stuck: list[Row], acks: list[tuple[int, int]], stall_ns: int) -> str | None:
    """What the consumer waited for, if it waited too long at one position."""
    readable = [row for row in stuck if row.offset > row.position]
    if readable and readable[-1].end_ns - readable[0].end_ns >= stall_ns:
        return "fetch hanging"
    at_end = [row for row in stuck if row.offset == row.position]
    if not at_end:
        return None
    waited = [end_ns for offset, end_ns in acks if offset >= at_end[-1].offset]
    if waited and at_end[-1].end_ns - max(min(waited), at_end[0].end_ns) >= stall_ns:
        return "watermark not advancing"
    return None


def _acked_ends(history: History) -> dict[Partition, list[tuple[int, int]]]:
    found: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
    if not history.by_kind[Kind.POLL]:
        return found
    for send in history.sends.values():
        if send.outcome == Outcome.OK and send.offset >= 0 and send.transaction < 0:
            found[partition_of(send)].append((send.offset, send.end_ns))
    return found


def _others_moved(
    samples: dict[Place, list[Row]], consumer: str, partition: Partition, since: Row
) -> bool:
    for (other, key), rows in samples.items():
        if other == consumer and key != partition:
            later = [row.position for row in rows if row.end_ns >= since.end_ns]
            if later and later[-1] > later[0]:
                return True
    return False


def _samples(history: History) -> dict[Place, list[Row]]:
    samples: dict[Place, list[Row]] = defaultdict(list)
    for row in history.by_kind[Kind.POLL]:
        if row.partition >= 0:
            samples[row.process, partition_of(row)].append(row)
    return samples


def _where(row: Row) -> str:
    return f"{row.topic}-{row.partition}"
