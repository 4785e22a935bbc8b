"""Anomalies of single values: phantom, corrupt, inconsistent-offsets, duplicate."""

from collections import defaultdict

from chronik.audit.anomaly import Findings, Level, Policy
from chronik.audit.history import History
from chronik.audit.rows import Kind, Outcome, Partition, Row, Value, partition_of, value_of


def find_phantoms(history: History, findings: Findings) -> None:
    """A value was read that nobody sent."""
    for value, rows in history.reads.items():
        if value not in history.sends and not history.is_damaged(rows[0]):
            findings.add("phantom", f"{_name(value)} was read but never sent", rows[0])


def find_corruption(history: History, findings: Findings) -> None:
    """A record does not agree with its checksum, or with the one of the send."""
    for row in history.damaged:
        found = history.logs[partition_of(row)].values.get(row.offset, {})
        sends = [history.sends[value] for value in found if value in history.sends]
        where = f"{row.topic}-{row.partition} offset {row.offset}"
        findings.add("corrupt", f"the record at {where} is damaged", row, *sends[:1])


def find_inconsistent_offsets(history: History, findings: Findings) -> None:
    """One offset of one key holds two values."""
    for partition, log in history.logs.items():
        for offset, values in sorted(log.values.items()):
            if len(values) > 1:
                names = " and ".join(_name(value) for value in values)
                where = f"{partition.topic}-{partition.partition} offset {offset}"
                findings.add("inconsistent-offsets", f"{where} holds {names}", *values.values())


def find_duplicates(history: History, findings: Findings, policy: Policy) -> None:
    """One value at two offsets of one key.

    Where an ack and a read disagree about an offset, that is `inconsistent-offsets` unless the
    value itself was found twice.
    """
    for (partition, value), places in _places(history).items():
        if len(places) < 2:
            continue
        name = f"{_name(value)} is at offsets {', '.join(map(str, sorted(places)))}"
        where = f"{partition.topic}-{partition.partition}"
        level = _duplicate_level(history, history.sends.get(value), policy)
        findings.add("duplicate", f"{name} of {where}", *places.values(), level=level)


def _places(history: History) -> dict[tuple[Partition, Value], dict[int, Row]]:
    """Where each value was found; an acked offset counts only if no other value is there."""
    places: dict[tuple[Partition, Value], dict[int, Row]] = defaultdict(dict)
    for row in history.by_kind[Kind.RECORD] + history.by_kind[Kind.REPLICA]:
        if not history.is_damaged(row):
            places[partition_of(row), value_of(row)].setdefault(row.offset, row)
    for partition, log in history.logs.items():
        for offset, values in log.values.items():
            for value, row in values.items():
                if row.kind == Kind.SEND and len(values) == 1:
                    places[partition, value].setdefault(offset, row)
    return places


def _duplicate_level(history: History, send: Row | None, policy: Policy) -> Level:
    """Kafka promises one copy to idempotent producers, and to a send acked without a retry."""
    if send is None or history.is_idempotent(send.process):
        return Level.FAIL
    if policy.at_least_once or send.outcome == Outcome.INFO:
        return Level.ALLOWED
    return Level.FAIL


def _name(value: Value) -> str:
    return f"value {value.sequence} of {value.sender}" if value.sender else "an unnamed value"
