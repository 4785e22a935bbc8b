"""What a verdict also measures: counts, latency, lag and unseen over time, shares, refusals."""

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from chronik.audit.anomaly import Findings, Level, Policy
from chronik.audit.history import History
from chronik.audit.rows import Kind, Outcome, Partition, Row

POINTS_MAX = 120
"""Points of a time series: enough for a plot."""
PERCENTILES = (50, 90, 95, 99, 99.9, 100)
Counts = dict[str, int]


class Times(NamedTuple):
    """Begin and end, in nanoseconds."""

    acked: list[tuple[int, int]]
    """Of every acked send."""
    delivered: list[tuple[int, int]]
    """Begin of the send and first read of each value of which both are known."""


def times_of(history: History) -> Times:
    acked = [send for send in history.sends.values() if send.outcome == Outcome.OK]
    return Times([(send.begin_ns, send.end_ns) for send in acked], _deliveries(history))


def measure(history: History, times: Times | None = None, step: int = 1) -> dict[str, Any]:
    """The times are those of the history, or given: of every so many-th value."""
    times = times or times_of(history)
    acked = [(end - begin) / 1e6 for begin, end in times.acked if begin >= 0]
    return {
        "sends": dict(Counter(send.outcome for send in history.sends.values())),
        "records": sum(len(rows) for rows in history.reads.values()),
        "values_read": len(history.reads),
        "partitions": named(partitions(history)),
        "ack_latency_ms": percentiles(acked),
        "delivery_latency_ms": percentiles([(end - begin) / 1e6 for begin, end in times.delivered]),
        "refusals": dict(Counter(_refusals(history))),
        "over_time": over_time(times, step),
        "lag_over_time": lag_over_time(history),
        "faults": dict(Counter(row.detail for row in history.by_kind[Kind.FAULT])),
    }


def named(counted: dict[Partition, Counts]) -> dict[str, Counts]:
    return {f"{key.topic}-{key.partition}": counts for key, counts in counted.items()}


def find_imbalance(
    history: History,
    findings: Findings,
    policy: Policy,
    counted: dict[Partition, Counts] | None = None,
) -> None:
    """A partition's share of what was sent deviates from an equal one; it may have none.

    The counts are those of the history, where no others are given.
    """
    topics: dict[str, list[int]] = defaultdict(list)
    for partition, counts in (partitions(history) if counted is None else counted).items():
        topics[partition.topic].append(counts["sent"])
    for topic, shares in topics.items():
        declared = int(history.topics.get(topic, {}).get("partitions", 0))
        shares.extend([0] * (declared - len(shares)))
        expected = sum(shares) / len(shares)
        if expected < policy.imbalance_records_min:
            continue
        worst = max(abs(count - expected) for count in shares) / expected
        if worst > policy.imbalance_share:
            said = f"{topic}: a partition is {worst:.0%} off its equal share of {expected:.0f}"
            findings.add("imbalance", said, level=Level.WARN)


def partitions(history: History) -> dict[Partition, Counts]:
    """Per key: what was committed, read and missed, the offsets read and the holes in them."""
    sent: Counter[Partition] = Counter()
    missed: Counter[Partition] = Counter()
    for value, send in history.sends.items():
        partition = history.partition_of_value(value, send)
        if partition.partition < 0 or not history.is_committed(send):
            continue
        sent[partition] += 1
        missed[partition] += value not in history.reads
    return {
        partition: _partition(history, partition, sent[partition], missed[partition])
        for partition in sorted(set(sent) | {key for key, log in history.logs.items() if log.read})
    }


def _partition(history: History, partition: Partition, sent: int, missed: int) -> dict[str, int]:
    log = history.logs[partition]
    low, high = min(log.read, default=-1), max(log.read, default=-1)
    return {
        "sent": sent,
        "read": len(log.read),
        "missed": missed,
        "offset_min": low,
        "offset_max": high,
        "gaps": high - low + 1 - len(log.read) if log.read else 0,
        "log_start": log.start,
        "log_end": -1 if log.end is None else log.end,
    }


def percentiles(values: list[float]) -> dict[str, float]:
    """Nearest-rank percentiles of milliseconds; empty without values."""
    ordered = sorted(values)
    ranks = {name: max(0, -(-len(ordered) * name // 100) - 1) for name in PERCENTILES}
    return {f"p{name:g}": round(ordered[int(rank)], 3) for name, rank in ranks.items() if ordered}


def over_time(times: Times, step: int = 1) -> dict[str, list[float]]:
    """Sent, acked and read in total at regular moments; unseen is acked minus read."""
    begun = sorted(begin for begin, _ in times.acked)
    acked = sorted(end for _, end in times.acked)
    read = sorted(end for _, end in times.delivered)
    if not begun or begun[0] < 0:
        return {}
    start, stop = begun[0], max(acked[-1], read[-1] if read else 0)
    width = max(1, (stop - start) // POINTS_MAX)
    moments = [*range(start, stop, width), stop]
    series = {"sent": begun, "acked": acked, "read": read}
    totals = {
        name: [step * bisect_right(at, now) for now in moments] for name, at in series.items()
    }
    unseen = [max(0, a - r) for a, r in zip(totals["acked"], totals["read"], strict=True)]
    seconds = [round((now - start) / 1e9, 6) for now in moments]
    return {"seconds": seconds, **totals, "unseen": unseen}


def lag_over_time(history: History) -> dict[str, dict[str, list[float]]]:
    """Per consumer, the records between its positions and the end offsets, over all partitions."""
    found: dict[str, dict[str, list[float]]] = {}
    samples = [row for row in history.by_kind[Kind.POLL] if row.offset >= 0 and row.position >= 0]
    start = min((row.end_ns for row in samples), default=0)
    lags: dict[str, dict[int, int]] = defaultdict(dict)
    for row in samples:
        lags[row.process][row.partition] = max(0, row.offset - row.position)
        series = found.setdefault(row.process, {"seconds": [], "lag": []})
        series["seconds"].append(round((row.end_ns - start) / 1e9, 3))
        series["lag"].append(sum(lags[row.process].values()))
    return {consumer: _thinned(series) for consumer, series in found.items()}


def _thinned(series: dict[str, list[float]]) -> dict[str, list[float]]:
    step = -(-len(series["lag"]) // POINTS_MAX)
    return {name: values[::step] for name, values in series.items()}


def _deliveries(history: History) -> list[tuple[int, int]]:
    """Begin of the send and first read of each value whose times are known."""
    found = []
    for value, rows in history.reads.items():
        send = history.sends.get(value)
        ends = [row.end_ns for row in rows if row.end_ns >= 0]
        if send is not None and send.begin_ns >= 0 and ends:
            found.append((send.begin_ns, min(ends)))
    return found


def _refusals(history: History) -> list[str]:
    return [_refusal(send) for send in history.sends.values() if send.outcome != Outcome.OK]


def _refusal(send: Row) -> str:
    return f"{send.process} {send.outcome} {send.detail}".strip()
