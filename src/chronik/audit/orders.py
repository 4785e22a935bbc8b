"""Anomalies of writing order: (int-)nonmonotonic-send, int-send-skip, realtime-order."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from chronik.audit.anomaly import Findings, Level, Policy
from chronik.audit.history import History
from chronik.audit.rows import Outcome, Partition, Row

Placed = tuple[int, Row]
"""An offset and the send whose value is there."""


def find_order_anomalies(history: History, findings: Findings, policy: Policy) -> None:
    placed = _placed_sends(history)
    for partition, sends in placed.items():
        for process, own in _by_process(sends).items():
            ordered = sorted(own, key=lambda item: item[1].sequence)
            _judge_producer(history, findings, policy, partition, process, ordered)
        for clock in _by_clock(history, sends).values():
            _judge_real_time(findings, partition, clock)


def _placed_sends(history: History) -> dict[Partition, list[Placed]]:
    placed: dict[Partition, list[Placed]] = defaultdict(list)
    for value, send in history.sends.items():
        offset = history.offset_of(value, send)
        if offset >= 0 and send.outcome != Outcome.FAIL:
            placed[history.partition_of_value(value, send)].append((offset, send))
    return placed


def _by_process(sends: list[Placed]) -> dict[str, list[Placed]]:
    grouped: dict[str, list[Placed]] = defaultdict(list)
    for item in sends:
        grouped[item[1].process].append(item)
    return grouped


def _by_clock(history: History, sends: list[Placed]) -> dict[str, list[Placed]]:
    """Times are compared only where one clock measured them."""
    grouped: dict[str, list[Placed]] = defaultdict(list)
    for item in sends:
        grouped[history.settings.get(item[1].process, {}).get("clock", "")].append(item)
    return grouped


def _judge_producer(
    history: History,
    findings: Findings,
    policy: Policy,
    partition: Partition,
    process: str,
    ordered: list[Placed],
) -> None:
    idempotent = history.is_idempotent(process)
    if not idempotent:
        # Without idempotence a send of unknown end may land at any later time.
        ordered = [item for item in ordered if item[1].outcome == Outcome.OK]
    level = Level.ALLOWED if policy.at_least_once and not idempotent else Level.FAIL
    for before, after in pairwise(ordered):
        inside = before[1].transaction >= 0 and before[1].transaction == after[1].transaction
        prefix = "int-" if inside else ""
        if after[0] <= before[0]:
            rows = (before[1], after[1])
            said = _said(partition, before, after)
            findings.add(f"{prefix}nonmonotonic-send", said, *rows, level=level)
        elif inside and history.between(partition, before[0], after[0]):
            said = _said(partition, before, after) + " with values of others between them"
            findings.add("int-send-skip", said, before[1], after[1], level=Level.ALLOWED)


def _judge_real_time(findings: Findings, partition: Partition, sends: list[Placed]) -> None:
    """A send that began after another was acked must be behind it in the log."""
    highest: Placed | None = None
    for _, is_begin, item in sorted(_moments(sends), key=lambda moment: moment[:2]):
        if not is_begin:
            highest = item if highest is None or item[0] > highest[0] else highest
        elif highest and highest[0] > item[0] and highest[1].process != item[1].process:
            said = _said(partition, highest, item) + " though it began after the ack"
            findings.add("realtime-order", said, highest[1], item[1])


def _moments(sends: list[Placed]) -> Iterator[tuple[int, bool, Placed]]:
    """Begins before ends at one instant, so that equal times count as concurrent."""
    for item in sends:
        if item[1].begin_ns >= 0:
            yield item[1].begin_ns * 2, True, item
        if item[1].outcome == Outcome.OK and item[1].end_ns >= 0:
            yield item[1].end_ns * 2 + 1, False, item


def _said(partition: Partition, before: Placed, after: Placed) -> str:
    first = f"{before[1].process}'s send {before[1].sequence} is at offset {before[0]}"
    second = f"{after[1].process}'s later send {after[1].sequence} at {after[0]}"
    return f"{partition.topic}-{partition.partition}: {first}, {second}"
