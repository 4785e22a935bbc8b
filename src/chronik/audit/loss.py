"""Anomalies of absence: lost-write, unseen, truncation, torn-transaction, and where it was lost."""

from chronik.audit.anomaly import Findings
from chronik.audit.history import History
from chronik.audit.rows import Kind, Outcome, Partition, Row, Value

LOST_NAMES = ("lost-write", "unseen", "truncation", "torn-transaction")


def find_losses(history: History, findings: Findings) -> None:
    """Each committed value that nobody read is judged once, under the most exact name."""
    for value, send in history.sends.items():
        if value in history.reads or not history.is_committed(send):
            continue
        partition = history.partition_of_value(value, send)
        name = loss_of(history, send, partition)
        if name:
            where = locate(history, value, send, partition)
            said = f"value {value.sequence} of {value.sender} was never read: {where}"
            evidence = _evidence(history, send, partition)
            findings.add(name, said, send, *evidence)


def loss_of(history: History, send: Row, partition: Partition) -> str | None:
    """The name of the loss, or None if no reader can be expected to have seen the value."""
    log = history.logs[partition]
    if send.offset < 0:
        # Acked without an offset: only a final read of the whole topic can miss it.
        logs = history.logs.items()
        ends = [log.end for key, log in logs if key.topic == send.topic and key.partition >= 0]
        finished = bool(ends) and None not in ends
        return "unseen" if finished and send.outcome == Outcome.OK else None
    if history.is_expired(partition, send.offset):
        return None
    missed = history.is_covered(partition, send.offset)
    if log.end is not None and send.offset >= log.end:
        return "truncation"
    if not missed and log.end is None:
        return None
    if history.transaction_of(send) in history.read_transactions:
        return "torn-transaction"
    return "lost-write" if missed else "unseen"


def _evidence(history: History, send: Row, partition: Partition) -> list[Row]:
    """What was read instead of it: its own place, or the nearest place after it; the end."""
    log = history.logs[partition]
    rows = []
    offsets = history.between(partition, send.offset - 1, 1 << 62) if send.offset >= 0 else []
    following = next((offset for offset in offsets if offset in log.read), None)
    if following is not None:
        rows.append(log.read[following])
    if log.end_row is not None:
        rows.append(log.end_row)
    return rows


def locate(history: History, value: Value, send: Row, partition: Partition) -> str:
    """Where a missing value was lost, as far as reads and replica logs can tell."""
    if send.offset < 0:
        return "no offset is known for it"
    log = history.logs[partition]
    others = [found for found in log.values.get(send.offset, {}) if found != value]
    if others:
        other = others[0]
        return f"overwritten, its offset holds value {other.sequence} of {other.sender}"
    replicas = {row.process for row in history.by_kind[Kind.REPLICA]}
    if not replicas:
        return "no replica log or trace tells where"
    holders = history.holders.get(value)
    if not holders:
        return "acked, but in no replica's log"
    if holders == replicas:
        return "in every replica's log, not served"
    return f"appended at {', '.join(sorted(holders))} only, never committed"
