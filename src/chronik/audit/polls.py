"""Anomalies of reading: poll-skip, nonmonotonic-poll, and both inside one poll (int-).

A skip jumps over a value that exists (somebody read it) and that this consumer was not given
before its place changed again. A value that nobody read is a loss, judged in `loss.py`.
"""

from itertools import pairwise

from chronik.audit.anomaly import Findings, Level
from chronik.audit.history import History, Stretch
from chronik.audit.rows import Partition, Row


def find_poll_anomalies(history: History, findings: Findings) -> None:
    for stretch in history.stretches:
        given = {row.offset for row in stretch.records}
        for before, after in pairwise(stretch.records):
            inside = "int-" if before.poll == after.poll else ""
            _judge_step(history, findings, (before, after), inside, given)
    _note_rebalances(history, findings)


def _judge_step(
    history: History, findings: Findings, step: tuple[Row, Row], inside: str, given: set[int]
) -> None:
    before, after = step
    if after.offset == before.offset + 1:
        return
    path = f"from {before.offset} to {after.offset}"
    where = f"{after.topic}-{after.partition}: {after.process} went {path}"
    if after.offset <= before.offset:
        findings.add(f"{inside}nonmonotonic-poll", where, before, after)
        return
    partition = Partition(after.topic, after.partition)
    skipped = [
        offset
        for offset in _existing_between(history, partition, before.offset, after.offset)
        if offset not in given
    ]
    if skipped:
        said = f"{where} over {len(skipped)} known values"
        witness = history.logs[partition].read[skipped[0]]
        findings.add(f"{inside}poll-skip", said, before, after, witness)


def _existing_between(history: History, partition: Partition, low: int, high: int) -> list[int]:
    if high - low <= 1:
        return []
    log = history.logs[partition]
    return [
        offset
        for offset in history.between(partition, low, high)
        if offset in log.read and not history.is_expired(partition, offset)
    ]


def _note_rebalances(history: History, findings: Findings) -> None:
    """Across a rebalance a group may go back (uncommitted work) or forward (others' work)."""
    last: dict[tuple[str, Partition], Stretch] = {}
    for stretch in history.stretches:
        if not stretch.records:
            continue
        place = (stretch.consumer, stretch.partition)
        before = last.get(place)
        last[place] = stretch
        if before is None or stretch.opened_by != "rebalance":
            continue
        step = (before.records[-1], stretch.records[0])
        name = "nonmonotonic-poll" if step[1].offset <= step[0].offset else "poll-skip"
        gap = _existing_between(history, stretch.partition, step[0].offset, step[1].offset)
        if name == "nonmonotonic-poll" or gap:
            said = f"{stretch.consumer}: {step[0].offset} to {step[1].offset} across a rebalance"
            findings.add(name, said, *step, level=Level.ALLOWED)
